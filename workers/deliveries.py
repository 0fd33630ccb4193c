"""Webhooks that are owed: made in the same step as the state they tell of, sent until they arrive."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.batch import is_batch_id
from workers.broker import Scripts, broker_errors, dumped, pairs
from workers.job import JsonObject, iso8601
from workers.settings import Settings
from workers.webhook_sender import SendOutcome

_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Delivery:
    """One webhook to one receiver, about the job or the batch ``subject``. ``body`` is fixed by the first
    try; ``tries`` counts those made."""

    id: str
    subject: str
    event: str
    created_at: float
    state: str
    tries: int
    log: tuple[JsonObject, ...]
    body: bytes | None

    def public(self) -> JsonObject:
        return {
            "id": self.id,
            "event": self.event,
            "state": self.state,
            "created_at": iso8601(self.created_at),
            "tries": self.tries,
            "log": list(self.log),
        }


class DeliveryStore:
    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._scripts = Scripts(client)

    def claim(self) -> Delivery | None:
        """The delivery due longest. Should this process die, it is due again after a while."""
        hold_ms = int(self._settings.webhook_hold_s * 1000)
        record = self._scripts.run("claim_delivery", args=(hold_ms,))
        return _delivery(pairs(record)) if record else None

    def count_due(self, now: float) -> int:
        """How many are due at ``now``, in Unix seconds."""
        with broker_errors():
            return int(self._client.zcount(keys.CONTROL_PREFIXES["deliveries_due"], "-inf", now * 1000))

    def target(self, subject: str) -> tuple[str, str] | None:
        """Address and signing secret; None when the record has run out."""
        record = keys.batch(subject) if is_batch_id(subject) else keys.job(subject)
        with broker_errors():
            raw = cast(bytes | None, self._client.hget(record, "webhook"))
        if raw is None:
            return None
        target = json.loads(raw)
        secret = target["secret"] or self._settings.webhook_secret
        return target["url"], secret or ""

    def fix_body(self, delivery: Delivery, record: JsonObject | None) -> bytes:
        """The bytes to send: made once, the same in every try. ``record``: the job or the batch as the API
        shows it; None, of a deleted job, says only that."""
        if delivery.body is not None:
            return delivery.body
        deleted = _told(delivery, {"id": delivery.subject, "deleted": True})
        body = deleted if record is None else _told(delivery, record)
        return cast(bytes, self._scripts.run("fix_body", args=(delivery.id, body, deleted)))

    def settle(self, delivery: Delivery, outcome: SendOutcome, now: float) -> str:
        """Log a try; the delivery's state after it: ``delivered``, ``due`` again, or ``failed``."""
        entry: JsonObject = {
            "at": iso8601(now),
            "status": outcome.status,
            "error": outcome.error,
            "elapsed_ms": round(outcome.elapsed_ms, 1),
        }
        waits = self._settings.webhook_retry_s
        wait_s = 0.0
        if outcome.ok:
            state = "delivered"
        elif outcome.gone or delivery.tries >= len(waits):
            state = "failed"
        else:
            state = "due"
            wait_s = waits[delivery.tries] * (1 + random.uniform(0, _JITTER))  # noqa: S311  # spreads load, guards nothing
            wait_s = min(max(wait_s, outcome.retry_after_s or 0.0), self._settings.webhook_longest_wait_s)
        ttl_ms = int(self._settings.job_retention_s * 1000)
        args = (delivery.id, json.dumps(entry), state, int(wait_s * 1000), ttl_ms)
        self._scripts.run("settle_delivery", args=args)
        return state

    def of_job(self, subject: str) -> list[Delivery]:
        """Of a job or a batch, oldest first."""
        with broker_errors():
            ids = cast(list[bytes], self._client.lrange(keys.deliveries_of(subject), 0, -1))  # type: ignore[redundant-cast, unused-ignore]  # the client is no coroutine's
        found = [self._get(delivery_id.decode()) for delivery_id in ids]
        return [delivery for delivery in found if delivery is not None]

    def replay(self, subject: str, delivery_id: str) -> Delivery:
        """Owe it anew, under the same id and body, with a fresh schedule. Raises ``not_found``."""
        if delivery_id not in (delivery.id for delivery in self.of_job(subject)):
            raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such delivery")
        self._scripts.run("replay_delivery", args=(delivery_id,))
        found = self._get(delivery_id)
        if found is None:
            raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such delivery")
        return found

    def _get(self, delivery_id: str) -> Delivery | None:
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.delivery(delivery_id)))
        if b"id" not in record:
            return None
        return _delivery({name.decode(): value.decode() for name, value in record.items()})


def _told(delivery: Delivery, data: JsonObject) -> str:
    told = {"type": delivery.event, "timestamp": iso8601(delivery.created_at), "data": data}
    return dumped(told)


def _delivery(record: dict[str, str]) -> Delivery:
    body = record.get("body")
    return Delivery(
        id=record["id"],
        subject=record["subject"],
        event=record["event"],
        created_at=int(record["created_ms"]) / 1000,
        state=record["state"],
        tries=int(record["tries"]),
        log=tuple(json.loads(record.get("log", "[]"))),
        body=body.encode() if body is not None else None,
    )
