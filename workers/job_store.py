"""The job records, and what clients do to them. Each move is one script: it happens whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.broker import Scripts, broker_errors, dumped, hash_fields, text
from workers.id_index import IdIndex
from workers.idempotency import Idempotency, key_taken
from workers.job import Job, JobSpec
from workers.job_streams import JobStreams
from workers.settings import Settings
from workers.states import Stage, Status
from workers.voice import name_digest

_TOMBSTONE_S = 3600
_LOOKED_AT_ONCE = 1000
_RETRY_AFTER_RANGE_S = (1.0, 600.0)


class JobStore:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away or full."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._scripts = Scripts(client)
        self._streams = JobStreams(client)
        self._retention_ms = int(settings.job_retention_s * 1000)

    def create(
        self, job_id: str, spec: JobSpec, *, idempotency: Idempotency | None = None
    ) -> tuple[Job, bool]:
        """Make the record and queue its first stage. False: an earlier job stands under this key.

        Raises ``idempotency_mismatch`` for the same key with another request, ``queue_full`` with the
        time after which the queue should have moved.
        """
        answer = cast(
            list[object],
            self._scripts.run(
                "create",
                keys=(keys.job(job_id),),
                args=(
                    job_id,
                    idempotency.digest() if idempotency else "",
                    idempotency.fingerprint if idempotency else "",
                    int(self._settings.idempotency_ttl_s * 1000),
                    self._settings.queue_limit,
                    spec.stages[0].value,
                    self.deadline_ms(spec),
                    spec.type.value,
                    spec.batch_id or "",
                    *self.fields(spec),
                ),
            ),
        )
        outcome = text(answer[0])
        if outcome == "mismatch":
            raise key_taken()
        if outcome == "full":
            raise _queue_full(queued=int(text(answer[1])), ended_per_minute=int(text(answer[2])))
        known_id = text(answer[1]) if outcome == "known" else job_id
        # Our own id can be known already: the call was tried again after its answer was lost.
        return self.get(known_id), known_id == job_id

    def get(self, job_id: str) -> Job:
        """Raises ``not_found``, or ``gone`` for a deleted job."""
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.job(job_id)))
        return self._job_of(hash_fields(record))

    def status(self, job_id: str) -> Status | None:
        """The status alone, cheap enough for a loop; None for an unknown or deleted job."""
        with broker_errors():
            status, deleted = cast(
                list[bytes | None], self._client.hmget(keys.job(job_id), ["status", "deleted"])
            )
        return None if status is None or deleted else Status(status.decode())

    def statuses(self, job_ids: Sequence[str]) -> list[Status | None]:
        """Of each; None for an unknown or deleted job."""
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hmget(keys.job(job_id), ["status", "deleted"])
            found = cast(list[list[bytes | None]], pipe.execute() if job_ids else [])
        return [None if status is None or deleted else Status(status.decode()) for status, deleted in found]

    def get_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Of each; None for an unknown or deleted job."""
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hgetall(keys.job(job_id))
            records = cast(list[dict[bytes, bytes]], pipe.execute() if job_ids else [])
        return [
            Job.from_hash(hash_fields(record)) if record and b"deleted" not in record else None
            for record in records
        ]

    def page(
        self,
        *,
        status: str | None = None,
        type: str | None = None,
        batch: str | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> tuple[list[Job], str | None]:
        """Newest first, and the cursor of the next page. Filters combine."""
        # The first of these is walked (the most telling one), the others are asked about each of its ids.
        filters = {"batch": batch, "status": status, "type": type}
        names = [f"{name}:{value}" for name, value in filters.items() if value is not None]
        walked, others = (names[0], names[1:]) if names else ("all", [])
        index = IdIndex(self._client, keys.index(walked), keys.job)
        found: list[Job] = []
        cursor = after
        # Where filters combine, few of the walked ids may pass: then they are looked at many at a time.
        size = max(limit + 1, _LOOKED_AT_ONCE) if others else limit + 1
        while True:
            ids = index.ids(size, cursor)
            passing = self._in_all(ids, others)
            for at in range(0, len(passing), limit + 1):
                for job in self.get_many(passing[at : at + limit + 1]):
                    if len(found) == limit:
                        return found, found[-1].id
                    if job is not None:
                        found.append(job)
            if len(ids) < size:
                return found, None
            cursor = ids[-1]

    def cancel(self, job_id: str) -> Job:
        """Raises ``job_finished`` when the job ended before; canceling twice is no error."""
        answer = cast(list[object], self._scripts.run("cancel", args=(job_id, self._retention_ms)))
        if answer and text(answer[1]) == Status.CANCELED:
            self._streams.drop(job_id)
        job = self.get(job_id)
        if answer and text(answer[0]) in (Status.SUCCEEDED, Status.FAILED):
            raise StagewaveError(ErrorCode.JOB_FINISHED, f"the job has already {text(answer[0])}")
        return job

    def delete(self, job_id: str) -> Job:
        """Cancel if need be, and forget; gives the job as it was, for its objects' sake."""
        job = self.get(job_id)
        custom_id = job.spec.line.custom_id if job.spec.line else None
        gone = {"code": ErrorCode.GONE.code, "message": "the job was deleted"}
        args = (job_id, _TOMBSTONE_S * 1000, dumped(custom_id), dumped(gone))
        self._scripts.run("delete", args=args)
        self._streams.drop(job_id)
        return job

    def mark_listening(self, job_id: str) -> None:
        """Somebody listens: from the next chunk on, the job works in a stream."""
        self._scripts.run("listen", args=(job_id,))

    def deadline_ms(self, spec: JobSpec) -> int:
        """From its creation on."""
        return int(min(spec.deadline_s or float("inf"), self._settings.job_deadline_s) * 1000)

    def fields(self, spec: JobSpec) -> list[object]:
        """Of a new record, as a flat list."""
        fields: dict[str, object] = {
            "spec": spec.to_json(),
            "priority": spec.priority,
            "max_attempts": self._settings.max_attempts,
            "stages": ",".join(spec.stages),
        }
        if Stage.TOKEN2WAV in spec.stages:
            fields["voice_name"] = name_digest(spec.model, spec.voice)
        for stage in spec.stages:
            fields[f"pool:{stage}"] = spec.pool(stage)
        if spec.batch_id:
            fields["batch"] = spec.batch_id
        if spec.webhook is not None:
            fields["webhook"] = json.dumps(asdict(spec.webhook))
            fields["webhook_events"] = f",{','.join(spec.webhook.events)},"
        return [part for pair in fields.items() for part in pair]

    def _job_of(self, record: dict[str, str]) -> Job:
        if not record:
            raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such job")
        if "deleted" in record:
            raise StagewaveError(ErrorCode.GONE, "the job was deleted")
        return Job.from_hash(record)

    def _in_all(self, ids: Sequence[str], indexes: Sequence[str]) -> Sequence[str]:
        for name in indexes:
            if ids:
                with broker_errors():
                    scores = self._client.zmscore(keys.index(name), list(ids))
                there = zip(ids, cast(list[object], scores), strict=True)
                ids = [job_id for job_id, score in there if score is not None]
        return ids


def _queue_full(*, queued: int, ended_per_minute: int) -> StagewaveError:
    # A tenth of the queue gone is room enough to come back for.
    per_second = max(ended_per_minute / 60, 0.1)
    least, most = _RETRY_AFTER_RANGE_S
    wait_s = min(max(queued / 10 / per_second, least), most)
    return StagewaveError(ErrorCode.QUEUE_FULL, "the queue is full", retry_after_s=wait_s)
