"""Which GPUs a process may see."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stage_pipeline.deploy import DeployError
from workers.pinning import pin, turn_on


@pytest.mark.parametrize(
    ("given", "devices", "seen"),
    [
        (None, "1", "1"),
        (None, "0,1", "0,1"),
        ("4,5,6", "0,2", "4,6"),
        ("GPU-aa,GPU-bb", "1", "GPU-bb"),
        ("4,5", "GPU-aa", "GPU-aa"),
    ],
)
def test_numbers_count_the_gpus_that_can_be_seen(given: str | None, devices: str, seen: str) -> None:
    environ = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}

    pin(devices, environ)

    assert environ["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.parametrize("given", ["", "4"])
def test_a_gpu_that_is_hidden_from_us_is_refused(given: str) -> None:
    with pytest.raises(DeployError, match="devices: there is no GPU 1"):
        pin("1", {"CUDA_VISIBLE_DEVICES": given})


def test_engines_start_one_after_another_on_a_gpu(tmp_path: Path) -> None:
    took_turn = threading.Event()

    def other() -> None:
        with turn_on("1,2", tmp_path):
            took_turn.set()

    with turn_on("0,1", tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        assert not took_turn.wait(0.2)
        with turn_on("3", tmp_path), turn_on(None, tmp_path):
            pass
    thread.join(5)
    assert took_turn.is_set()


def test_a_pool_process_has_loaded_nothing_that_looks_for_gpus_when_it_is_pinned() -> None:
    script = "import sys, workers.pool; print({'torch', 'vllm'} & {*sys.modules})"

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "set()"
