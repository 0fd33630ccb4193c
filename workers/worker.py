"""What a pool process does when a bell rings: it claims jobs, runs the attempts, and records their ends."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.attempt import Attempt, AttemptLost, AttemptReleased, LeaseKeeper
from workers.backend import Backend
from workers.fenced_stream import FencedOff
from workers.io_runner import WebhookRunner
from workers.job_store import Claim
from workers.results import remove_objects, remove_other_attempts
from workers.spool import Spool
from workers.states import IO_POOL, Stage, Status

_log = logging.getLogger(__name__)


class Runner(Protocol):
    """What does the work of one stage."""

    stage: Stage

    def run(self, attempt: Attempt) -> None: ...


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
        webhooks: WebhookRunner | None = None,
    ) -> None:
        self._backend = backend
        self._keeper = keeper
        self._pool = pool
        self._worker_id = worker_id
        self._runner = runner
        self._spool = spool
        self._webhooks = webhooks
        self._stopping = threading.Event()
        self._taking = threading.Lock()
        self._sending = threading.BoundedSemaphore(max(1, backend.settings.io_concurrency // 2))
        self._heard_at = time.monotonic()

    @property
    def heard_at(self) -> float:
        """When the last bell was answered, on the monotonic clock."""
        return self._heard_at

    def answer(self) -> None:
        """One bell: jobs, and webhooks that are due, until there is nothing left to do."""
        self._heard_at = time.monotonic()
        busy = True
        while busy and not self._stopping.is_set():
            attempt = self._take()
            if attempt is not None:
                try:
                    self._run(attempt)
                finally:
                    self._keeper.drop(attempt)
            busy = attempt is not None
            busy = self._send_webhook() or busy

    def stop_after(self, drain_s: float) -> None:
        """Take no more jobs; hand back what still runs after ``drain_s``."""
        self._stopping.set()
        timer = threading.Timer(drain_s, self._keeper.release_all)
        timer.daemon = True
        timer.start()

    def _send_webhook(self) -> bool:
        # Receivers may be slow: they get half of the threads, so that fetching audio never waits for them.
        if self._webhooks is None or not self._sending.acquire(blocking=False):
            return False
        try:
            return self._webhooks.run_one()
        finally:
            self._sending.release()

    def _take(self) -> Attempt | None:
        if not self._spool.has_room():
            _log.warning("no room on disk: no job taken", extra={"pool": self._pool})
            return None
        # One at a time, so that two threads cannot both find that there is no suspect here yet.
        with self._taking:
            has_suspect = self._keeper.has_suspect
            claim = self._backend.jobs.claim(
                self._pool, self._runner.stage, self._worker_id, has_suspect=has_suspect
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
            if (pool := self._backend.jobs.release(claim)) is not None:
                self._backend.bell.ring(pool)
        except StagewaveError as error:
            outcome = self._failed(attempt, error)
        except Exception:
            # The edge of a task: log the cause once, and let the job know only that it failed.
            _log.exception("attempt broke", extra=where)
            outcome = self._failed(
                attempt, StagewaveError(ErrorCode.INTERNAL, "an internal error ended this attempt")
            )
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
        self._backend.jobs.fail(attempt.claim, error)
        return error.code.code

    def _drop_leftovers(self, claim: Claim) -> None:
        """Of a job that was canceled or deleted, what this attempt has made a moment too late."""
        job_id = claim.job.id
        status = self._backend.jobs.status(job_id)
        if status is not None and (not status.terminal or status is Status.SUCCEEDED):
            return
        self._backend.jobs.drop_streams(job_id)
        try:
            if status is None:
                remove_objects(self._backend.objects, job_id)
            else:
                remove_other_attempts(self._backend.objects, job_id, kept=set())
        except StagewaveError:
            _log.warning("leftovers stay until the sweep", extra={"job_id": job_id})

    def _ring_for_webhooks(self, claim: Claim) -> None:
        if claim.job.spec.webhook is not None:
            self._backend.bell.ring(IO_POOL)
