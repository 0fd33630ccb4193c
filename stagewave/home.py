"""The home folder: one ``stagewave up`` at a time, its secrets and its logs."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import time
from pathlib import Path

from stagewave.embedded_process import write_private
from stagewave.errors import HomeBusy
from workers.processes import process_runs
from workers.settings import Settings, load_settings, to_environ

ENDING_S = 15.0
"""How long to wait for the processes of an ``up`` that was killed; its warden needs a few seconds."""


class Home:
    """``STAGEWAVE_HOME``, by its absolute path. ``lock`` before anything else is done with it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.logs = self.path / "logs"
        self._lock_path = self.path / "up.lock"
        self._running_path = self.path / "running.json"
        self.lock_fd: int | None = None

    def lock(self) -> None:
        """Take the home folder for this process, making it when it is not there; raises ``HomeBusy``."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + ENDING_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = self.holder()
                if holder is not None and process_runs(holder) or time.monotonic() > deadline:
                    os.close(fd)
                    raise HomeBusy(
                        f"Stagewave already runs in {self.path} (process {holder or 'unknown'}): "
                        "stop it first, or set STAGEWAVE_HOME to another folder"
                    ) from None
                time.sleep(0.1)
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        self.lock_fd = fd

    def keep_running(self, settings: Settings) -> None:
        """Write down what the processes of this ``up`` were given, for those who come by later."""
        write_private(self._running_path, json.dumps(to_environ(settings)))

    def running_settings(self) -> Settings | None:
        """The settings of the ``up`` that has this home, or had it last; None when there was none."""
        try:
            return load_settings(json.loads(self._running_path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def unlock(self) -> None:
        if self.lock_fd is not None:
            os.ftruncate(self.lock_fd, 0)
            os.close(self.lock_fd)
            self.lock_fd = None

    def holder(self) -> int | None:
        """The process that has, or had, the lock."""
        try:
            text = self._lock_path.read_text(encoding="ascii")
        except OSError:
            return None
        return int(text) if text.isdecimal() else None

    def webhook_secret(self) -> str:
        """``whsec_…`` (Standard Webhooks), made once and kept, so that receivers can go on checking."""
        path = self.path / "webhook.secret"
        if not path.exists():
            fresh = self.path / "webhook.secret.new"
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode())
            fresh.rename(path)
        return path.read_text(encoding="ascii")
