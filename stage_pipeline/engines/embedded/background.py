"""Threads for what nobody waits for."""

from __future__ import annotations

import os
import sys
import threading

# A tenth of a core's time beside a usual thread. With the least there is (19) a step would take minutes on
# a crowded machine, and look as if the engine hung.
NICE = 10


def give_way() -> None:
    """From now on this thread, and every one that it starts, gets about a tenth of a core whenever others
    want it: at once, and in the middle of whatever it does. On Linux; elsewhere it stays as it is."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
