"""A worker that is deaf is dead: it exits when it no longer hears its bells, and is started again.

A consumer can lose its connection and look alive for ever. What shows it is that bells wait, threads are
free, and none has been answered for a while, though the broker answers this very process.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from stage_pipeline.errors import StagewaveError
from workers.attempt import LeaseKeeper
from workers.backend import Backend
from workers.bell import waiting_bells
from workers.broker import broker_errors
from workers.pool_registry import PoolWorker
from workers.worker import Worker

_log = logging.getLogger(__name__)

DEAF_S = 15.0
"""Longer than any bell waits for a free thread; a consumer reconnects within a few seconds."""
_LOOK_S = 2.0
_LEAVE_S = 2.0
DEAF_EXIT = 75
"""EX_TEMPFAIL: started again, it will hear."""


class Hearing:
    """Watches over one worker from a thread of its own."""

    def __init__(
        self,
        backend: Backend,
        keeper: LeaseKeeper,
        worker: Worker,
        record: PoolWorker,
        deaf_s: float = DEAF_S,
    ) -> None:
        self._deaf_s = deaf_s
        self._backend = backend
        self._keeper = keeper
        self._worker = worker
        self._record = record

    def start(self) -> None:
        threading.Thread(target=self._watch, name="hearing", daemon=True).start()

    def _watch(self) -> None:
        unheard_since: float | None = None
        while True:
            time.sleep(_LOOK_S)
            if not self._has_unheard_bells():
                unheard_since = None
                continue
            now = time.monotonic()
            unheard_since = max(unheard_since or now, self._worker.heard_at)
            if now - unheard_since >= self._deaf_s:
                self._leave()

    def _has_unheard_bells(self) -> bool:
        if self._keeper.running >= self._record.concurrency:
            return False
        try:
            with broker_errors():
                return waiting_bells(self._backend.client, self._record.pool) > 0
        except StagewaveError:
            return False  # the broker is away: then nobody hears, and that is no fault of ours

    def _leave(self) -> None:
        _log.error("deaf: bells wait and none is heard", extra={"pool": self._record.pool})
        self._keeper.release_all()
        time.sleep(_LEAVE_S)
        os._exit(DEAF_EXIT)
