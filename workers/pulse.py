"""What the engine of a process works on: whether it still gives anything, seen from outside."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

STUCK_TIMES = 5
"""So many times as long as a whole engine may be silent, one step may take while others get theirs: it may
have to wait for a place in the engine, but not for ever."""


@dataclass(frozen=True, slots=True)
class _Step:
    who: object
    began: int


class Pulse:
    """One for a process. Time is counted in looks, not read from a clock: a process that was stopped for a
    while, or had no processor, has not looked, so what it missed meanwhile makes nothing seem to hang.

    An engine hangs when a step has been going on for ``limit`` looks and nothing at all has come
    meanwhile; and a step hangs that takes ``STUCK_TIMES`` as long, whatever others get.
    """

    def __init__(self) -> None:
        self._names = itertools.count()
        self._steps: dict[int, _Step] = {}
        self._looks = 0
        self._heard = 0

    def steps(self, who: object, made: Iterator[Item]) -> Iterator[Item]:
        """``made``, with each step noted as ``who``'s for as long as it takes. From many threads."""
        end = object()
        while True:
            name = next(self._names)
            self._steps[name] = _Step(who, self._looks)
            try:
                item = next(made, end)
            finally:
                self._heard = self._looks
                del self._steps[name]
            if item is end:
                return
            yield item  # type: ignore[misc]  # whatever is not the end is an item

    def look(self, limit: int) -> set[object]:
        """Called at equal intervals. Whose steps hang; nobody's while the engine is well."""
        self._looks += 1
        steps = list(self._steps.values())
        silent = self._looks - self._heard > limit
        longest = limit if silent else limit * STUCK_TIMES
        return {step.who for step in steps if self._looks - step.began > longest}
