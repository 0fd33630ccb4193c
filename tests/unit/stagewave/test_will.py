"""When a supervisor is gone, its warden ends what it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewave.home import Home
from stagewave.will import Will


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.lock()
    yield home
    home.unlock()


def sleeper() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    # Reaped at once, as init does it: a group that is only a zombie is still there.
    threading.Thread(target=process.wait, daemon=True).start()
    return process


def test_a_closed_will_ends_what_is_named_in_it(home: Home) -> None:
    assert home.lock_fd is not None
    named, struck_out, never_named = sleeper(), sleeper(), sleeper()
    will = Will(home.lock_fd)
    will.add(named.pid)
    will.add(struck_out.pid)
    will.remove(struck_out.pid)

    will.close()

    assert named.wait(5) == -signal.SIGTERM
    assert struck_out.poll() is None
    assert never_named.poll() is None
    for process in (struck_out, never_named):
        process.kill()
        process.wait()


def test_a_supervisor_killed_with_sigkill_takes_its_children_with_it(tmp_path: Path) -> None:
    # Given a supervisor with a child
    code = (
        "import subprocess, sys; from pathlib import Path\n"
        "from stagewave.home import Home; from stagewave.will import Will\n"
        f"home = Home(Path({str(tmp_path)!r})); home.lock(); will = Will(home.lock_fd)\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "will.add(child.pid); print(child.pid, flush=True); child.wait()"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    child = int(supervisor.stdout.readline())

    # When it is killed
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()

    # Then the child ends too, and the home is free soon
    Home(tmp_path).lock()
    deadline = time.monotonic() + 5
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(child)


def test_a_warden_that_was_killed_is_replaced(home: Home) -> None:
    assert home.lock_fd is not None
    named = sleeper()
    will = Will(home.lock_fd)
    will.add(named.pid)
    will._process.kill()
    will._process.wait()

    will.renew()
    will.close()

    assert named.wait(5) == -signal.SIGTERM


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_ctrl_c_of_a_terminal_does_not_reach_a_warden(home: Home) -> None:
    assert home.lock_fd is not None
    will = Will(home.lock_fd)

    assert os.getsid(will._process.pid) != os.getsid(0)

    will.close()
