"""Who waits to hear the first of an answer, and how work gives way to them that nobody waits for.

Priorities order the work of one process. The stages of a deploy are processes that may share a GPU, which
takes turns between them whatever each of them does in its turn: work in the background has to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONGEST_S = 0.5
"""So long the background stops at a time; then it goes on for as long, whoever waits: it gets half of the
time at least."""


class Urgency:
    """One process's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: set[object] = set()
        self._free_until = clock()

    def begins(self, who: object) -> None:
        """From now on ``who`` waits; saying it twice changes nothing."""
        with self._changed:
            self._waiting.add(who)

    def ends(self, who: object) -> None:
        """It waits no longer, if it did."""
        with self._changed:
            self._waiting.discard(who)
            if not self._waiting:
                self._changed.notify_all()

    def give_way(self) -> None:
        """For work in the background, between its steps: returns when nobody waits, or it has its turn."""
        with self._changed:
            began = self._clock()
            if not self._waiting or began < self._free_until:
                return
            self._changed.wait_for(lambda: not self._waiting, LONGEST_S)
            now = self._clock()
            self._free_until = now + (now - began)
