"""What a pool process does when a bell rings: it claims jobs, runs the attempts, and records their ends."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from stage_pipeline.errors import EngineDead, ErrorCode, StagewaveError, is_disk_full
from workers.attempt import Attempt, AttemptLost, AttemptReleased, LeaseKeeper
from workers.backend import Backend
from workers.claim_store import Claim
from workers.fenced_stream import FencedOff
from workers.object_store import ObjectStore
from workers.results import remove_objects, remove_other_attempts
from workers.spool import Spool
from workers.states import IO_POOL, Stage, Status

_log = logging.getLogger(__name__)

LEFT_EXIT = 75
"""EX_TEMPFAIL: a worker that cannot go on; started again, it will."""
_LEAVE_S = 2.0
"""Enough to hand jobs back; what was not handed back by then is taken back when its lease runs out."""


class Runner(Protocol):
    """What does the work of one stage."""

    stage: Stage

    def run(self, attempt: Attempt) -> None: ...


class Aside(Protocol):
    """What a worker does beside its jobs."""

    def run_one(self) -> bool:
        """False when there is nothing to do."""
        ...


class Worker:
    """Answers bells: claims a job, runs the attempt, and records how it ended."""

    def __init__(
        self,
        backend: Backend,
        keeper: LeaseKeeper,
        pool: str,
        worker_id: str,
        runner: Runner,
        spool: Spool,
        room_for_batches: int,
        aside: Aside | None = None,
    ) -> None:
        self._backend = backend
        self._keeper = keeper
        self._pool = pool
        self._worker_id = worker_id
        self._runner = runner
        self._spool = spool
        self._room_for_batches = room_for_batches
        self._aside = aside
        self._stopping = threading.Event()
        self._leaving = threading.Lock()
        self._taking = threading.Lock()
        self._beside = threading.BoundedSemaphore(max(1, backend.settings.io_concurrency // 2))
        self._answered = 0

    @property
    def answered(self) -> int:
        """How many bells have been answered."""
        return self._answered

    def answer(self) -> None:
        """One bell: jobs, and what is due beside them, until there is nothing left to do."""
        self._answered += 1
        busy = True
        while busy and not self._stopping.is_set():
            attempt = self._take()
            if attempt is not None:
                try:
                    self._run(attempt)
                finally:
                    self._keeper.drop(attempt)
            busy = attempt is not None
            busy = self._run_aside() or busy

    def stop_after(self, drain_s: float) -> None:
        """Take no more jobs; hand back what still runs after ``drain_s``."""
        self._stopping.set()
        timer = threading.Timer(drain_s, self._keeper.release_all)
        timer.daemon = True
        timer.start()

    def leave(self, lost: Collection[object] = ()) -> None:
        """End this process at once, so that its supervisor starts it again. Attempts are handed back, but
        for those that are ``lost``: each may be what brought the process down, so it has to count."""
        if not self._leaving.acquire(blocking=False):
            return  # another thread is about it
        self._stopping.set()
        # In a thread of its own, since an engine that hangs may not even take an abort.
        threading.Thread(target=self._keeper.release_all, args=(lost,), daemon=True).start()
        time.sleep(_LEAVE_S)
        os._exit(LEFT_EXIT)

    def _run_aside(self) -> bool:
        # Receivers of webhooks may be slow: they get half of the threads, so that fetching never waits for
        # them.
        if self._aside is None or not self._beside.acquire(blocking=False):
            return False
        try:
            return self._aside.run_one()
        finally:
            self._beside.release()

    def _take(self) -> Attempt | None:
        if not self._spool.has_room():
            _log.warning("no room on disk: no job taken", extra={"pool": self._pool})
            return None
        # One at a time, so that two threads cannot both find that there is no suspect here yet.
        with self._taking:
            has_suspect = self._keeper.has_suspect
            claim = self._backend.claims.claim(
                self._pool,
                self._runner.stage,
                self._worker_id,
                has_suspect=has_suspect,
                live_only=self._keeper.running >= self._room_for_batches,
            )
            return self._keeper.hold(claim) if claim is not None else None

    def _run(self, attempt: Attempt) -> None:
        claim = attempt.claim
        where = {"job_id": claim.job.id, "stage": claim.stage.value, "attempt": claim.attempt}
        began = time.monotonic()
        try:
            self._work(attempt)
            outcome = "done"
        except (AttemptLost, FencedOff):
            outcome = "lost"
            self._drop_leftovers(claim)
        except AttemptReleased:
            outcome = "released"
            if (pool := self._backend.claims.release(claim)) is not None:
                self._backend.bell.ring(pool)
        except EngineDead:
            # Its lease runs out, and so it counts as lost: it may be what the engine died of.
            _log.exception("the engine died", extra=where)
            self.leave(lost=[attempt])
            outcome = "engine dead"
        except StagewaveError as error:
            outcome = self._failed(attempt, error)
        except Exception as error:
            # The edge of a task: log the cause once, and let the job know only that it failed.
            _log.exception("attempt broke", extra=where)
            outcome = self._failed(attempt, _public(error))
        self._ring_for_webhooks(claim)
        elapsed_ms = round((time.monotonic() - began) * 1000, 1)
        _log.info("attempt ended", extra={**where, "outcome": outcome, "ms": elapsed_ms})

    def _work(self, attempt: Attempt) -> None:
        try:
            self._runner.run(attempt)
        except Exception:
            attempt.check()  # what was told to stop may say so in its own way
            raise

    def _failed(self, attempt: Attempt, error: StagewaveError) -> str:
        ended = self._backend.claims.fail(attempt.claim, error)
        if ended and attempt.claim.stage is Stage.TOKEN2WAV:
            self._remove(attempt.job.id, partial(remove_other_attempts, kept=set()))
        return error.code.code

    def _drop_leftovers(self, claim: Claim) -> None:
        """Of a job that was canceled or deleted, what this attempt has made a moment too late."""
        job_id = claim.job.id
        status = self._backend.jobs.status(job_id)
        if status is not None and (not status.terminal or status is Status.SUCCEEDED):
            return
        self._backend.streams.drop(job_id)
        remove = remove_objects if status is None else partial(remove_other_attempts, kept=set())
        self._remove(job_id, remove)

    def _remove(self, job_id: str, remove: Callable[[ObjectStore, str], None]) -> None:
        try:
            remove(self._backend.objects, job_id)
        except StagewaveError:
            _log.warning("leftovers stay until the sweep", extra={"job_id": job_id})

    def _ring_for_webhooks(self, claim: Claim) -> None:
        if claim.job.spec.webhook is not None:
            self._backend.bell.ring(IO_POOL)


def _public(error: Exception) -> StagewaveError:
    if is_disk_full(error):
        return StagewaveError(ErrorCode.DISK_FULL, "the disk of a worker was full")
    return StagewaveError(ErrorCode.INTERNAL, "an internal error ended this attempt")
