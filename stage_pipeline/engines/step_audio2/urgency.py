"""Who waits to hear the first of an answer, and how work gives way to them that nobody waits for.

Priorities order the work of one process. The stages of a deploy are processes that may share a GPU, which
takes turns between them whatever each of them does in its turn: work in the background has to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONGEST_S = 0.5
"""So long the background stops at a time; then it goes on for as long, whoever waits: it gets half of the
time at least."""
_STALE_S = 5.0
"""Who waits for longer waits for something else: for a Thinker that is started again, say."""


class Urgency:
    """One process's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[object, float] = {}
        self._behind = 0
        self._free_until = clock()

    def begins(self, who: object) -> None:
        """From now on ``who`` waits; saying it twice changes nothing."""
        with self._changed:
            self._waiting.setdefault(who, self._clock())

    def ends(self, who: object) -> None:
        """It waits no longer, if it did."""
        with self._changed:
            self._waiting.pop(who, None)
            self._changed.notify_all()

    @contextmanager
    def behind_it(self) -> Iterator[None]:
        """While in here somebody waits until the background is done: it does not stop."""
        with self._changed:
            self._behind += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._behind -= 1

    def give_way(self) -> None:
        """For work in the background, between its steps: returns when nobody waits, or it has its turn."""
        with self._changed:
            began = self._clock()
            if began < self._free_until or self._may_go_on():
                return
            self._changed.wait_for(self._may_go_on, LONGEST_S)
            now = self._clock()
            self._free_until = now + (now - began)

    def _may_go_on(self) -> bool:
        now = self._clock()
        return self._behind > 0 or all(now - since > _STALE_S for since in self._waiting.values())
