"""How far a run has come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of one run. ``total`` is None until all has been counted."""

    total: int | None = None
    done: int = 0
    skipped: int = 0
    passed_over: int = 0
    audio_s: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    """By code."""
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def failed(self) -> int:
        return self.failures.total()

    @property
    def seen(self) -> int:
        """All that is settled, one way or another."""
        return self.done + self.failed + self.skipped

    @property
    def took_s(self) -> float:
        return max(self.clock() - self.began, 1e-9)

    @property
    def rate(self) -> float:
        """Items a second, of those that were worked on."""
        return (self.done + self.failed) / self.took_s

    @property
    def eta_s(self) -> float | None:
        if self.total is None or not self.rate:
            return None
        return max(0, self.total - self.seen) / self.rate
