"""A circuit breaker on the object store: finished work waits on local disk while the store is away.

No stage is repeated for a storage failure. The thread that holds the finished work waits, so a pool
whose store is away fills up and takes no more jobs: nothing is made that could not be kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.attempt import Attempt
from workers.object_store import ObjectStore

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

PROBE_S = 1.0
"""How often the store is asked, by one thread, whether it is back."""
LOOK_S = 0.1


class Breaker:
    """One for a process. While it is open nobody calls the store but the one that probes."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._open = False
        self._probed_at = 0.0

    def call(self, attempt: Attempt, use: Callable[[], _Answer]) -> _Answer:
        """``use()``, again and again while the store is away; ends early with the attempt."""
        while True:
            self._wait_closed(attempt)
            try:
                return use()
            except StagewaveError as error:
                self._note(attempt, error)

    def once(self, attempt: Attempt, use: Callable[[], _Answer]) -> _Answer | None:
        """``use()``; None while the store is away, or when it turns out to be."""
        if self._open:
            return None
        try:
            return use()
        except StagewaveError as error:
            self._note(attempt, error)
            return None

    def _note(self, attempt: Attempt, error: StagewaveError) -> None:
        """Opens for a store that is away; raises what is another error."""
        if error.code is not ErrorCode.STORE_UNAVAILABLE:
            raise error
        if not self._open:
            _log.warning("object store away", extra={"job_id": attempt.job.id})
        self._open, self._probed_at = True, time.monotonic()

    def _wait_closed(self, attempt: Attempt) -> None:
        while self._open:
            attempt.check()
            if self._may_probe():
                self._probe()
            else:
                time.sleep(LOOK_S)

    def _may_probe(self) -> bool:
        with self._lock:
            due = time.monotonic() - self._probed_at >= PROBE_S
            if due:
                self._probed_at = time.monotonic()
            return due

    def _probe(self) -> None:
        try:
            # Also when it came back empty: then nothing could ever be stored again.
            self._objects.ensure_bucket()
        except StagewaveError:
            return
        self._open = False
        _log.info("object store back")
