"""Memory that was freed goes back to the system."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from stage_pipeline.engines.embedded.free_memory import give_back

BLOCK, BLOCKS = 32 * 1024, 4096


def resident_mb() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_lies_free_between_what_is_in_use_is_given_back() -> None:
    kept: list[bytes] = []

    def use() -> None:
        blocks = [b"x" * BLOCK for _ in range(BLOCKS)]
        kept.extend(blocks[::64])

    before = resident_mb()
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    held = resident_mb()
    give_back()
    assert held - before > 60, "the C library gave it back by itself"
    assert resident_mb() - before < 30
