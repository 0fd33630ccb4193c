"""Whose turn it is to compute: as many at a time as there are cores, first sounds before the rest."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A counting lock with two classes of waiters, first come first served in each."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._lock = threading.Lock()
        self._waiting: list[tuple[bool, int, threading.Event]] = []
        self._count = 0

    @contextmanager
    def turn(self, *, urgent: bool) -> Iterator[None]:
        """Hold one of the places; ``urgent`` waiters get the next free one."""
        with self._lock:
            if self._free:
                self._free -= 1
                granted = None
            else:
                granted = threading.Event()
                self._count += 1
                heapq.heappush(self._waiting, (not urgent, self._count, granted))
        if granted is not None:
            granted.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    # The place goes from hand to hand, so that nobody slips in between.
                    heapq.heappop(self._waiting)[2].set()
                else:
                    self._free += 1
