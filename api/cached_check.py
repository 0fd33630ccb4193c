"""A check whose result is kept for a while, because probes ask for it far more often than it changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stage_pipeline.errors import StagewaveError

CheckResult = dict[str, bool | str]


def run_check(call: Callable[[], object]) -> CheckResult:
    """Whether ``call`` gets through, and if not, its public message."""
    try:
        call()
    except StagewaveError as error:
        return {"ok": False, "detail": error.message}
    return {"ok": True}


class CachedCheck:
    """One request makes the check anew when it is old; those that come meanwhile take the last result."""

    def __init__(self, call: Callable[[], object], keep_s: float) -> None:
        self._call = call
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._made_at = float("-inf")
        self._result: CheckResult | None = None

    def result(self) -> CheckResult:
        fresh = time.monotonic() - self._made_at < self._keep_s
        if self._result is not None and (fresh or not self._lock.acquire(blocking=False)):
            return self._result
        if self._result is None:
            self._lock.acquire()
        try:
            self._result = run_check(self._call)
            self._made_at = time.monotonic()
            return self._result
        finally:
            self._lock.release()
