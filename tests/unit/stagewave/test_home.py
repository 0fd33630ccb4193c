"""The home folder belongs to one supervisor at a time, and keeps its secrets."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stagewave.errors import HomeBusy
from stagewave.home import Home


def test_a_second_lock_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from stagewave.home import Home\n"
            f"Home(Path({str(tmp_path)!r})).lock(); print('locked', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"

    with pytest.raises(HomeBusy, match=f"process {holder.pid}"):
        Home(tmp_path).lock()

    holder.stdin.close()
    holder.wait(10)
    holder.stdout.close()
    Home(tmp_path).lock()


def test_an_unlocked_home_can_be_locked_again(tmp_path: Path) -> None:
    first = Home(tmp_path)
    first.lock()
    first.unlock()

    second = Home(tmp_path)
    second.lock()

    second.unlock()


def test_the_lock_is_waited_for_while_the_processes_of_a_killed_holder_end(tmp_path: Path) -> None:
    # Given a holder that was killed, and a process it left that still has the lock for a second
    code = (
        "import os, signal, subprocess; from pathlib import Path; from stagewave.home import Home\n"
        f"home = Home(Path({str(tmp_path)!r})); home.lock()\n"
        "subprocess.Popen(['sleep', '1'], pass_fds=(home.lock_fd,)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code])
    began = time.monotonic()

    # When somebody locks it
    home = Home(tmp_path)
    home.lock()

    # Then that one waited
    assert 0.2 < time.monotonic() - began < 5
    home.unlock()


def test_the_webhook_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    home = Home(tmp_path)

    secret = home.webhook_secret()

    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert Home(tmp_path).webhook_secret() == secret
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"webhook.secret": 0o600}
