"""A wrong clock for a Python process, read from a file while it runs.

On the ``PYTHONPATH`` of a process whose environment names a folder in ``CHAOS_CLOCKS``, this shifts
``time.time``, ``time.time_ns`` and ``datetime.now`` by the seconds in the folder's file that is called
like the process. Monotonic clocks stay right, as on a real machine whose clock is set.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from pathlib import Path

LOOK_S = 0.05


def _name() -> str:
    """What the supervisor calls this process."""
    command = sys.orig_argv
    if "--stage" in command:
        return command[command.index("--stage") + 1]
    return {"workers.scheduler": "scheduler", "api.server": "api"}.get(command[-1], "other")


class _Clock:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_at = float("-inf")
        self._shift_s = 0.0

    def shift_s(self) -> float:
        now = time.monotonic()
        if now - self._read_at >= LOOK_S:
            self._read_at = now
            try:
                self._shift_s = float(self._file.read_text())
            except (FileNotFoundError, ValueError):
                self._shift_s = 0.0
        return self._shift_s


def _install(clock: _Clock) -> None:
    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + clock.shift_s()
    time.time_ns = lambda: true_ns() + int(clock.shift_s() * 1e9)

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Shifted:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Shifted:
            return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    datetime.datetime = Shifted  # type: ignore[misc]  # a clock is all that is changed


if "CHAOS_CLOCKS" in os.environ:
    _install(_Clock(Path(os.environ["CHAOS_CLOCKS"]) / _name()))
