"""A disk that is really full: under the spool, under the broker's log, under the object store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT

OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def may_mount() -> bool:
    """Whether this user may have a small disk made, in a name space of its own."""
    try:
        made = subprocess.run(
            [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, timeout=10
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return made.returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs Linux user name spaces, to mount small disks")
def test_while_a_disk_is_full_jobs_wait_and_nothing_is_lost(tmp_path: Path) -> None:
    command = [*OWN_MOUNTS, sys.executable, "-m", "tests.chaos.full_disk", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
