"""The last will of ``stagewave up``: a process that ends the others when their supervisor is gone.

A supervisor that is killed with SIGKILL can end nothing itself. So it starts this first, and tells it over
a pipe which process groups run: ``+123`` for a new one, ``-123`` for one that has ended. When the pipe
closes, whatever still runs is ended. It works wherever there are pipes and process groups, and for programs
that know nothing of it. It also inherits the home folder's lock, so that the next ``up`` cannot start
before the last one's processes are gone.

Runs as a script of its own (``python -I warden.py``): it needs nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 3.0
"""After SIGTERM, this long until SIGKILL."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    end(groups)


def end(groups: set[int]) -> None:
    left = {group for group in groups if tell(group, signal.SIGTERM)}
    deadline = time.monotonic() + GRACE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {group for group in left if tell(group, 0)}
    for group in left:
        tell(group, signal.SIGKILL)


def tell(group: int, number: int) -> bool:
    """Whether the group was still there to get the signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main()
