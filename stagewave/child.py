"""One supervised process: started in a process group of its own, logged to a file, ended as a group."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LOG_BYTES = 20 * 1024 * 1024
"""A log that is longer becomes ``<name>.log.1``, over the one before it."""
STEADY_S = 30.0
"""A process that ran this long was well: its next restart is quick again."""
LONGEST_PAUSE_S = 30.0
_TAIL_BYTES = 65_536
KILLED_S = 5.0
"""A killed process that is still there is stuck in the kernel: waiting longer does not help."""


class Child:
    """A process that is to run until it is stopped; it says when to start it again, and never does so."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.deaths = 0
        """How often it has ended since it last ran for ``STEADY_S``."""
        self.due_at: float | None = None
        """When it is to be started again, by the monotonic clock; None while it runs."""
        self._started_at = 0.0
        self._log_start = 0
        self._command = list(command)
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Also the id of its process group; None before the first start."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        self.bound_log()
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603  # our own command line
                self._command,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C of the terminal must reach the supervisor alone, which knows the right order.
                # Not a session of its own: Linux may share processor time out by sessions first, and then
                # the low priority of work in the background would count inside its own process only.
                process_group=0,
            )
        self._started_at = time.monotonic()
        self.due_at = None

    def bury(self) -> float:
        """Note that it has ended by itself; the pause, in seconds, until it is due again."""
        # What it started goes too: the next one must not meet it.
        self.signal(signal.SIGKILL)
        now = time.monotonic()
        self.deaths = 1 if now - self._started_at > STEADY_S else self.deaths + 1
        pause_s = min(LONGEST_PAUSE_S, 0.5 * 2.0 ** (self.deaths - 1))
        self.due_at = now + pause_s
        return pause_s

    def exit_code(self) -> int | None:
        """None while it runs; -9 for a process ended by signal 9."""
        return self._process.poll() if self._process else None

    def signal(self, number: int) -> None:
        """To the whole group: a process that forks is ended with its children."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # It has ended; macOS answers "not permitted" for a group of zombies.

    def bound_log(self) -> None:
        """Keep the log short. The process goes on writing to the same file, which it opened to append."""
        try:
            if self.log.stat().st_size > LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)
        except FileNotFoundError:
            pass

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self._log_from(0).splitlines()[-lines:])

    def log_of_run(self) -> str:
        """What it wrote since its last start, or the end of that."""
        return self._log_from(self._log_start)

    def _log_from(self, start: int) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(start, self.log.stat().st_size - _TAIL_BYTES))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""


def end(children: Iterable[Child], within_s: float) -> None:
    """End them together: SIGTERM, then SIGKILL for those that still run after ``within_s``."""
    ending = [child for child in children if child.pid is not None]
    for child in ending:
        child.signal(signal.SIGTERM)
    wait_ended(ending, within_s)
    for child in ending:
        # Also when its leader ended in time: what it left in its group goes too.
        child.signal(signal.SIGKILL)
    wait_ended(ending, KILLED_S)


def wait_ended(children: Iterable[Child], within_s: float) -> None:
    """Return when all have ended, or after ``within_s``."""
    running = [child for child in children if child.pid is not None]
    deadline = time.monotonic() + within_s
    while any(child.exit_code() is None for child in running) and time.monotonic() < deadline:
        time.sleep(0.02)
