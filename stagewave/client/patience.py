"""Trying again: what may pass by itself, how long it is borne, and how long to pause in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from stagewave.client.call import Answer, Call, Plan
from stagewave.errors import ApiError, ClientError, Unreachable

T = TypeVar("T")

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0
PASSING = frozenset({429, 502, 503, 504})
"""Too many requests, and a server or what stands behind it that is away for a while."""


@dataclass(frozen=True, slots=True)
class Patience:
    """``limit_s`` after its first failure a call is given up."""

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def tries(self) -> Tries:
        return Tries(self)


class Tries:
    """The tries of one call."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._until: float | None = None
        self._failures = 0

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._until = None
        self._failures = 0

    def pause_s(self, error: ClientError) -> float:
        """How long to wait before the next try; raises ``error`` when there should be none."""
        if not passes(error):
            raise error
        now = self._patience.clock()
        if self._until is None:
            self._until = now + self._patience.limit_s
        # Half of the pause is chance, so that many clients of a server that was away come back one by one.
        pause_s = (
            min(FIRST_PAUSE_S * 2.0**self._failures, LONGEST_PAUSE_S) * (1 + self._patience.chance()) / 2
        )
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            pause_s += error.retry_after_s
        if now + pause_s > self._until:
            raise error
        self._failures += 1
        return pause_s


def passes(error: ClientError) -> bool:
    """Whether the same request may work a little later."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.status in PASSING)


def patiently(plan: Plan[T], patience: Patience) -> Plan[T]:
    """The same plan, each call of it tried again while that may help."""
    try:
        call = next(plan)
        while True:
            try:
                answer = yield from _answered(call, patience)
            except ClientError as error:
                call = plan.throw(error)
            else:
                call = plan.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


def _answered(call: Call, patience: Patience) -> Plan[Answer]:
    tries = patience.tries()
    while True:
        try:
            answer = yield call
            answer.check()
            return answer
        except ClientError as error:
            call = replace(call, after_s=tries.pause_s(error))
