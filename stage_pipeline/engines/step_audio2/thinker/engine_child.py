"""What vLLM's processes do first, besides registering the model: they die with their parent, keep out of
the way of its signals, and leave word of what stopped them."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from pathlib import Path

PARENT = "STAGEWAVE_ENGINE_PARENT"
"""In the environment of the engine's processes: the id of the process that serves jobs."""
FAULTS = "STAGEWAVE_ENGINE_FAULTS"
"""And the file for the errors that kept one of them from starting."""

_PR_SET_PDEATHSIG = 1


def settle() -> None:
    """Called by the plugin in every process that loads it; does nothing in one that is no child."""
    parent = os.environ.get(PARENT)
    if parent is None or int(parent) == os.getpid():
        return
    logging.getLogger("vllm").addHandler(_FaultFile(Path(os.environ[FAULTS])))
    if os.getppid() == int(parent):
        # The engine core. Its own children see it go, and go too.
        _die_with_parent(int(parent))
        # Ctrl-C and a supervisor's SIGTERM go to a whole group. The parent drains, and needs us for it.
        os.setpgid(0, 0)


def _die_with_parent(parent: int) -> None:
    """A parent that is killed must not leave an engine behind that holds the GPU."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _FaultFile(logging.Handler):
    """vLLM's parent process learns only that a child failed; the cause is in the child's log."""

    def __init__(self, file: Path) -> None:
        super().__init__(logging.ERROR)
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        try:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(f"{type(error).__name__}: {error}\n")
        except OSError:
            pass  # only a better message would have come of it
