"""A worker that is deaf is dead, and so is one whose engine is silent: it exits, and is started again.

A consumer can lose its connection and look alive for ever. What shows it is that bells wait, threads are
free, and none has been answered for a while, though the broker answers this very process. An engine can
hang in a step: then nothing comes from it though it has work.
"""

from __future__ import annotations

import faulthandler
import logging
import math
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
_LOOK_S = 1.0


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
        self._deaf_looks = math.ceil(deaf_s / _LOOK_S)
        self._silent_s = backend.settings.engine_silent_s
        self._backend = backend
        self._keeper = keeper
        self._worker = worker
        self._record = record

    def start(self) -> None:
        for watch in (self._watch_engine, self._watch_bells):
            threading.Thread(target=watch, name="hearing", daemon=True).start()

    def _watch_engine(self) -> None:
        limit = math.ceil(self._silent_s / _LOOK_S)
        while True:
            # An engine that hangs without letting go of the interpreter stops this thread too: then the
            # process ends all the same, with its stacks in the log.
            faulthandler.dump_traceback_later(self._silent_s + _LOOK_S, exit=True, file=2)
            time.sleep(_LOOK_S)
            if hanging := self._keeper.pulse.look(limit):
                faulthandler.cancel_dump_traceback_later()
                _log.error("the engine hangs", extra={"pool": self._record.pool, "attempts": len(hanging)})
                self._worker.leave(lost=hanging)

    def _watch_bells(self) -> None:
        answered = unheard = 0
        while True:
            time.sleep(_LOOK_S)
            if self._worker.answered != answered or not self._has_unheard_bells():
                answered, unheard = self._worker.answered, 0
                continue
            unheard += 1
            if unheard >= self._deaf_looks:
                _log.error("deaf: bells wait and none is heard", extra={"pool": self._record.pool})
                self._worker.leave()

    def _has_unheard_bells(self) -> bool:
        if self._keeper.running >= self._record.concurrency:
            return False
        try:
            with broker_errors():
                return waiting_bells(self._backend.client, self._record.pool) > 0
        except StagewaveError:
            return False  # the broker is away: then nobody hears, and that is no fault of ours
