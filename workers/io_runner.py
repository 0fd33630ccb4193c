"""Runs what waits for other people's servers: fetching audio, and delivering webhooks."""

from __future__ import annotations

import logging

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.attempt import Attempt, AttemptLost
from workers.audio_fetch import fetch_audio
from workers.backend import Backend
from workers.batch import is_batch_id
from workers.breaker import Breaker
from workers.broker import broker_time
from workers.deliveries import Delivery
from workers.job import JsonObject
from workers.results import input_key
from workers.spool import Spool
from workers.states import Stage
from workers.webhook_sender import SendOutcome, send_webhook

_log = logging.getLogger(__name__)


class FetchRunner:
    """Brings a job's audio from its URL into the object store, before any model is asked."""

    stage = Stage.FETCH

    def __init__(self, backend: Backend, spool: Spool, breaker: Breaker) -> None:
        self._backend = backend
        self._breaker = breaker
        self._spool = spool

    def run(self, attempt: Attempt) -> None:
        source = attempt.job.spec.audio
        if source is None or source.url is None:
            raise StagewaveError(ErrorCode.INTERNAL, "a job without a URL came to be fetched")
        with self._spool.attempt_folder() as folder:
            path = folder / "input"
            with path.open("wb") as file:
                fetch_audio(self._backend.settings, source.url, file, abort=lambda: attempt.ended)
            attempt.check()
            key, kind = input_key(attempt.job.id), "application/octet-stream"
            self._breaker.call(attempt, lambda: self._backend.objects.put_file(key, path, kind))
        held, pool = self._backend.claims.start_next(attempt.claim, done=True, streamed=False)
        if not held:
            raise AttemptLost
        if pool is not None:
            self._backend.bell.ring(pool)


class WebhookRunner:
    """Sends the webhook that has been due longest."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def run_one(self) -> bool:
        """False when nothing was due."""
        delivery = self._backend.deliveries.claim()
        if delivery is None:
            return False
        # Receivers refuse what is minutes old or comes from the future, and our own clock may be wrong.
        now = broker_time(self._backend.client)
        state = self._backend.deliveries.settle(delivery, self._send(delivery, now), now)
        _log.info(
            "webhook sent",
            extra={"subject": delivery.subject, "delivery": delivery.id, "state": state},
        )
        return True

    def _send(self, delivery: Delivery, now: float) -> SendOutcome:
        target = self._backend.deliveries.target(delivery.subject)
        if target is None:
            return SendOutcome.given_up("the job's record has run out")
        url, secret = target
        if not secret:
            return SendOutcome.given_up("no signing secret is set")
        body = self._backend.deliveries.fix_body(delivery, self._record(delivery.subject))
        return send_webhook(
            self._backend.settings, url=url, message_id=delivery.id, body=body, secret=secret, now=now
        )

    def _record(self, subject: str) -> JsonObject | None:
        try:
            if is_batch_id(subject):
                return self._backend.batches.get(subject).public()
            return self._backend.jobs.get(subject).public()
        except StagewaveError as error:
            if error.code in (ErrorCode.GONE, ErrorCode.NOT_FOUND):
                return None
            raise
