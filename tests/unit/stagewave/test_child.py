"""A child is started, logged, and ended with all that it started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from stagewave import child as child_module
from stagewave.child import Child, end

SLEEPS = "import time; print('up', flush=True); time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"
FORKS = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


def make(tmp_path: Path, code: str, name: str = "child") -> Child:
    return Child(name, [sys.executable, "-c", code], os.environ, tmp_path / f"{name}.log")


def until_said(child: Child) -> str:
    deadline = time.monotonic() + 10
    while not child.log_tail() and time.monotonic() < deadline:
        time.sleep(0.02)
    return child.log_tail()


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_children_end_together_on_sigterm(tmp_path: Path) -> None:
    children = [make(tmp_path, SLEEPS, f"child-{number}") for number in range(3)]
    for child in children:
        child.start()
        until_said(child)
    began = time.monotonic()

    end(children, within_s=5)

    assert time.monotonic() - began < 2
    assert [child.exit_code() for child in children] == [-15, -15, -15]


def test_a_child_deaf_to_sigterm_is_killed_in_time(tmp_path: Path) -> None:
    child = make(tmp_path, DEAF)
    child.start()
    until_said(child)
    began = time.monotonic()

    end([child], within_s=0.5)

    assert 0.5 <= time.monotonic() - began < 2
    assert child.exit_code() == -9


def test_a_child_hears_no_ctrl_c_and_shares_processor_time_with_the_others(tmp_path: Path) -> None:
    child = make(tmp_path, SLEEPS)
    child.start()
    try:
        assert child.pid is not None
        assert os.getpgid(child.pid) == child.pid
        assert os.getsid(child.pid) == os.getsid(0)
    finally:
        end([child], within_s=5)


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    child = make(tmp_path, FORKS)
    child.start()
    grandchild = int(until_said(child))
    assert runs(grandchild)

    end([child], within_s=5)

    deadline = time.monotonic() + 5
    while runs(grandchild) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(grandchild)


def test_a_child_that_was_never_started_can_be_ended(tmp_path: Path) -> None:
    end([make(tmp_path, SLEEPS)], within_s=1)


def test_the_pause_before_a_restart_doubles_and_is_bounded(tmp_path: Path) -> None:
    child = make(tmp_path, "")

    pauses = []
    for _ in range(9):
        child.start()
        while child.exit_code() is None:
            time.sleep(0.005)
        pauses.append(child.bury())

    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert child.deaths == 9


def test_a_long_log_is_moved_aside_and_the_child_goes_on_writing(
    tmp_path: Path, monkeypatch: object
) -> None:
    chatter = "import time\nfor n in range(10**6): print(f'line {n:04}', flush=True); time.sleep(0.002)"
    child = make(tmp_path, chatter)
    child.start()
    try:
        until_said(child)
        with child.log.open("ab") as log:
            log.truncate(child_module.LOG_BYTES + 1)  # a hole, so that the test writes no 20 MB

        child.bound_log()

        deadline = time.monotonic() + 10
        while "line" not in child.log_tail() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "line" in child.log_tail()
        assert child.log.stat().st_size < 100_000
        assert (tmp_path / "child.log.1").stat().st_size > child_module.LOG_BYTES
    finally:
        end([child], within_s=1)
