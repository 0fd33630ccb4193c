"""The supervisor's side of the warden: which process groups it is to end when we are gone."""

from __future__ import annotations

import subprocess
import sys

from stagewave import warden


class Will:
    """Runs a warden for as long as it is open. A warden that was killed is replaced."""

    def __init__(self, lock_fd: int) -> None:
        self._lock_fd = lock_fd
        self._groups: set[int] = set()
        self._process = self._spawn()

    def add(self, group: int) -> None:
        if group not in self._groups:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def renew(self) -> None:
        """Start another warden when this one has ended."""
        if self._process.poll() is None:
            return
        self._process = self._spawn()
        for group in self._groups:
            self._tell(f"+{group}\n")

    def close(self) -> None:
        """End the warden, and with it whatever is still named in the will."""
        assert self._process.stdin is not None  # noqa: S101  # it was opened as a pipe
        self._process.stdin.close()
        self._process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  # our own script
            [sys.executable, "-I", warden.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            pass_fds=(self._lock_fd,),
            start_new_session=True,
        )

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101  # it was opened as a pipe
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:
            self.renew()
