"""Waiting for the end of a job or a batch, one long poll after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from stagewave.client.call import Call, Plan
from stagewave.record import Batch, Job, JsonObject

Record = TypeVar("Record", Job, Batch)

POLL_S = 25.0
"""One long poll; under the 30 s after which many proxies give up."""
PAUSE_S = 0.5
"""With too many waiters the server answers at once, and should not be asked again at once."""


def until_finished(
    path: str, read: Callable[[JsonObject], Record], timeout_s: float | None
) -> Plan[Record]:
    """The record once it is ``finished``; after ``timeout_s`` the record as it then is."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = 0.0
    while True:
        asked_at = time.monotonic() + pause_s
        left_s = POLL_S if end is None else max(0.0, min(POLL_S, end - asked_at))
        answer = yield looking(path, left_s, pause_s)
        record = read(answer.json())
        now = time.monotonic()
        if record.finished or (end is not None and now >= end):
            return record
        pause_s = PAUSE_S if now - asked_at < left_s / 2 else 0.0


def looking(path: str, wait_s: float, after_s: float = 0.0) -> Call:
    """The call for a record now, or as soon as it is finished, at the latest after ``wait_s``."""
    params = {"wait": f"{wait_s:.3f}"} if wait_s > 0 else {}
    return Call(method="GET", path=path, params=params, wait_s=max(wait_s, 0.0), after_s=after_s)
