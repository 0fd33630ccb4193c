"""The job records and every move of a job. Each move is one script, so it happens whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.broker import Scripts, broker_errors, pairs, text
from workers.job import Job, JobSpec, JsonObject
from workers.settings import Settings
from workers.states import Stage, Status
from workers.voice import name_digest

_TOMBSTONE_S = 3600
_LISTENERS_GRACE_S = 300
"""How long live audio outlives its job: whoever listens reads on to the end."""
_LOOKED_AT_ONCE = 1000
_BEHIND = 1e15
"""How far jobs of batches stand behind the others in a queue; ``lua/prelude.lua`` has it too."""
_RETRY_AFTER_RANGE_S = (1.0, 600.0)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's ``Idempotency-Key`` and the digest of the request it came with."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt's right to work on a job: the attempt number is the fence of all it does.

    ``suspect``: an earlier attempt lost its worker or failed, so this job may be the one that kills."""

    job: Job
    stage: Stage
    attempt: int
    suspect: bool = False


class JobStore:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away or full."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._scripts = Scripts(client)
        self._retention_ms = int(settings.job_retention_s * 1000)

    # -- what clients do -------------------------------------------------------------------------

    def create(
        self, job_id: str, spec: JobSpec, *, idempotency: Idempotency | None = None
    ) -> tuple[Job, bool]:
        """Make the record and queue its first stage. False: an earlier job stands under this key.

        Raises ``idempotency_mismatch`` for the same key with another request, ``queue_full`` with the
        time after which the queue should have moved.
        """
        digest = hashlib.sha256(idempotency.key.encode()).hexdigest() if idempotency else ""
        answer = cast(
            list[object],
            self._scripts.run(
                "create",
                keys=(keys.job(job_id),),
                args=(
                    job_id,
                    digest,
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
            raise StagewaveError(
                ErrorCode.IDEMPOTENCY_MISMATCH,
                "this Idempotency-Key was used with another request",
                field="Idempotency-Key",
            )
        if outcome == "full":
            raise _queue_full(queued=int(text(answer[1])), ended_per_minute=int(text(answer[2])))
        known_id = text(answer[1]) if outcome == "known" else job_id
        # Our own id can be known already: the call was tried again after its answer was lost.
        return self.get(known_id), known_id == job_id

    def get(self, job_id: str) -> Job:
        """Raises ``not_found``, or ``gone`` for a deleted job."""
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.job(job_id)))
        return self._job_of({k.decode(): v.decode() for k, v in record.items()})

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
            Job.from_hash({k.decode(): v.decode() for k, v in record.items()})
            if record and b"deleted" not in record
            else None
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
        found: list[Job] = []
        cursor = after
        # Where filters combine, few of the walked ids may pass: then they are looked at many at a time.
        size = max(limit + 1, _LOOKED_AT_ONCE) if others else limit + 1
        while True:
            ids = self._ids(walked, cursor, size)
            for job_id in self._in_all(ids, others):
                if len(found) == limit:
                    return found, found[-1].id
                if (job := self._get_or_none(job_id)) is not None:
                    found.append(job)
            if len(ids) < size:
                return found, None
            cursor = ids[-1]

    def cancel(self, job_id: str) -> Job:
        """Raises ``job_finished`` when the job ended before; canceling twice is no error."""
        answer = cast(list[object], self._scripts.run("cancel", args=(job_id, self._retention_ms)))
        if answer and text(answer[1]) == Status.CANCELED:
            self.drop_streams(job_id)
        job = self.get(job_id)
        if answer and text(answer[0]) in (Status.SUCCEEDED, Status.FAILED):
            raise StagewaveError(ErrorCode.JOB_FINISHED, f"the job has already {text(answer[0])}")
        return job

    def delete(self, job_id: str) -> Job:
        """Cancel if need be, and forget; gives the job as it was, for its objects' sake."""
        job = self.get(job_id)
        self._scripts.run("delete", args=(job_id, _TOMBSTONE_S * 1000))
        self.drop_streams(job_id)
        return job

    def mark_listening(self, job_id: str) -> None:
        """Somebody listens: from the next chunk on, the job works in a stream."""
        self._scripts.run("listen", args=(job_id,))

    # -- what workers do -------------------------------------------------------------------------

    def claim(
        self,
        pool: str,
        stage: Stage,
        worker_id: str,
        *,
        has_suspect: bool = False,
        live_only: bool = False,
    ) -> Claim | None:
        """The best ready job of a pool, under a new lease and attempt number. A worker that has a suspect
        (see ``Claim``) gets no second one; ``live_only``: none that belongs to a batch."""
        args = (stage.value, worker_id, self._lease_ms, int(has_suspect), int(live_only))
        record = self._scripts.run("claim", keys=(keys.ready(pool),), args=args)
        if not record:
            return None
        fields = pairs(record)
        suspect = int(fields.get(f"failures:{stage}", 0)) > 0
        return Claim(Job.from_hash(fields), stage, int(fields[f"attempt:{stage}"]), suspect)

    def renew(self, claims: Sequence[Claim]) -> list[int]:
        """For each claim: 0 lost (canceled, ended, or taken over), 1 held, 2 held and listened to."""
        triples = [part for claim in claims for part in _name(claim)]
        return cast(list[int], self._scripts.run("renew", args=(self._lease_ms, *triples)))

    def start_next(self, claim: Claim, *, done: bool, streamed: bool) -> tuple[bool, str | None]:
        """Queue the following stage once; ``done`` also ends this one. Gives whether the claim still
        held, and the pool to ring."""
        following = claim.job.spec.next_stage(claim.stage)
        answer = cast(
            list[object],
            self._scripts.run(
                "start_next",
                args=(*_name(claim), following.value if following else "", int(done), int(streamed)),
            ),
        )
        return answer[0] == 1, text(answer[1]) if len(answer) > 1 else None

    def first_audio(self, claim: Claim) -> None:
        self._scripts.run("first_audio", args=_name(claim))

    def succeed(self, claim: Claim, result: JsonObject, usage: JsonObject) -> bool:
        """False when another attempt, a cancel or a deadline was first."""
        args = (*_name(claim), _dumped(result), _dumped(usage), self._retention_ms)
        return self._scripts.run("succeed", args=args) == 1

    def fail(self, claim: Claim, error: StagewaveError) -> bool:
        """Try again later when that can help and attempts are left, else end the job; whether it ended."""
        retryable = error.code.retryable
        body = _failure(error, claim.stage)
        args = (*_name(claim), _dumped(body), self._retention_ms, int(retryable))
        ended = self._scripts.run("fail", args=args) == 1
        if ended:
            self.drop_streams(claim.job.id)
        return ended

    def release(self, claim: Claim) -> str | None:
        """Hand the job back unharmed (a worker that stops); the pool to ring."""
        answer = cast(list[object], self._scripts.run("release", args=(*_name(claim), self._retention_ms)))
        return text(answer[1]) if answer[0] == 1 else None

    # -- what the scheduler does -----------------------------------------------------------------

    def reap(self, most: int = 200) -> tuple[int, set[str]]:
        """Queue again what dead workers held, end what is past its deadline; how many, and the pools
        to ring."""
        lost = StagewaveError(ErrorCode.WORKER_LOST, "the workers of this job were lost again and again")
        late = StagewaveError(ErrorCode.DEADLINE_EXCEEDED, "the job did not end before its deadline")
        answer = cast(
            list[object],
            self._scripts.run(
                "reap",
                args=(
                    most,
                    _dumped(_failure(lost)),
                    _dumped(_failure(late)),
                    self._retention_ms,
                    self._lease_ms,
                    int(self._settings.webhook_longest_wait_s * 1000),
                ),
            ),
        )
        taken, pools, ended = cast(tuple[int, list[bytes], list[bytes]], answer)
        for job_id in ended:
            self.drop_streams(text(job_id))
        return taken, {text(pool) for pool in pools}

    def requeue(self, job_id: str, stage: Stage) -> str | None:
        """Put a ready stage that is in no queue back into its own; the pool to ring."""
        return text(self._scripts.run("requeue", args=(job_id, stage.value))) or None

    def reindex(self, job_id: str) -> None:
        """Name the job in the indexes where its record says it is."""
        self._scripts.run("reindex", args=(job_id, *Status))

    def live_depths(self, pools: Iterable[str]) -> dict[str, int]:
        """Ready jobs of each pool, but for those of batches."""
        return self._depths(pools, "-inf", _BEHIND / 2)

    def batch_depths(self, pools: Iterable[str]) -> dict[str, int]:
        """Ready jobs of batches in each pool."""
        return self._depths(pools, _BEHIND / 2, "+inf")

    def _depths(self, pools: Iterable[str], least: float | str, most: float | str) -> dict[str, int]:
        names = list(pools)
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for pool in names:
                pipe.zcount(keys.ready(pool), least, most)
            return dict(zip(names, pipe.execute(), strict=True))

    def queue_depths(self, pools: Iterable[str]) -> dict[str, int]:
        """Ready jobs of each pool."""
        names = list(pools)
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for pool in names:
                pipe.zcard(keys.ready(pool))
            return dict(zip(names, pipe.execute(), strict=True))

    def counts(self) -> dict[str, int]:
        """Totals since the store was made, for metrics: ``jobs|tts|succeeded``, ``ttfp|tts|250``, …"""
        with broker_errors():
            totals = cast(dict[bytes, bytes], self._client.hgetall(keys.CONTROL_PREFIXES["counts"]))
        return {name.decode(): int(value) for name, value in totals.items()}

    def count_by_status(self) -> dict[str, int]:
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for status in Status:
                pipe.zcard(keys.index(f"status:{status}"))
            return dict(zip((s.value for s in Status), pipe.execute(), strict=True))

    def forget_expired(self, before_id: str) -> int:
        """Take ids older than ``before_id`` whose records have run out from every index."""
        return sum(self._sweep(name, before_id) for name in self._index_names())

    def drop_tokens(self, job_id: str) -> None:
        """The tokens of a job that has succeeded; its live audio stays a while for slow listeners."""
        self._unlink(keys.tokens(job_id), keys.tokens_head(job_id))
        self._expire(keys.audio(job_id), keys.audio_head(job_id))

    def drop_streams(self, job_id: str) -> None:
        """Tokens and audio of a job that nobody can listen to any more."""
        self._unlink(keys.tokens(job_id), keys.tokens_head(job_id))
        self._unlink(keys.audio(job_id), keys.audio_head(job_id))

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _lease_ms(self) -> int:
        return int(self._settings.lease_s * 1000)

    def _unlink(self, *names: str) -> None:
        # The names share a hash tag, so they are on one node of a cluster.
        with broker_errors():
            self._client.unlink(*names)

    def _expire(self, *names: str) -> None:
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.expire(name, _LISTENERS_GRACE_S)
            pipe.execute()

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

    def _get_or_none(self, job_id: str) -> Job | None:
        try:
            return self.get(job_id)
        except StagewaveError as error:
            if error.code in (ErrorCode.NOT_FOUND, ErrorCode.GONE):
                return None
            raise

    def _ids(self, index: str, after: str | None, limit: int) -> list[str]:
        start = f"({after}" if after else "+"
        with broker_errors():
            ids = self._client.zrange(
                keys.index(index),
                start,
                "-",
                desc=True,
                bylex=True,
                offset=0,
                num=limit,
            )
        return [text(job_id) for job_id in cast(list[bytes], ids)]

    def _in_all(self, ids: Sequence[str], indexes: Sequence[str]) -> Sequence[str]:
        for name in indexes:
            if ids:
                with broker_errors():
                    scores = self._client.zmscore(keys.index(name), list(ids))
                there = zip(ids, cast(list[object], scores), strict=True)
                ids = [job_id for job_id, score in there if score is not None]
        return ids

    def _index_names(self) -> list[str]:
        prefix = keys.index("")
        with broker_errors():
            found = self._client.scan_iter(match=keys.starting_with(prefix), count=1000)
            return [text(key)[len(prefix) :] for key in found]

    def _sweep(self, index: str, before_id: str) -> int:
        removed = 0
        start = "-"
        while True:
            with broker_errors():
                ids = self._client.zrange(
                    keys.index(index),
                    start,
                    f"({before_id}",
                    bylex=True,
                    offset=0,
                    num=500,
                )
                pipe = self._client.pipeline(transaction=False)
                for job_id in cast(list[bytes], ids):
                    pipe.exists(keys.job(text(job_id)))
                gone = [
                    i for i, there in zip(cast(list[bytes], ids), pipe.execute(), strict=True) if not there
                ]
                if gone:
                    removed += self._client.zrem(keys.index(index), *gone)
            if len(cast(list[bytes], ids)) < 500:
                return removed
            start = f"({text(cast(list[bytes], ids)[-1])}"


def _name(claim: Claim) -> tuple[str, str, int]:
    return claim.job.id, claim.stage.value, claim.attempt


def _dumped(body: JsonObject) -> str:
    return json.dumps(body, ensure_ascii=False)


def _failure(error: StagewaveError, stage: Stage | None = None) -> JsonObject:
    return {
        "code": error.code.code,
        "message": error.message,
        "stage": stage.value if stage else None,
        "retryable": error.code.retryable,
    }


def _queue_full(*, queued: int, ended_per_minute: int) -> StagewaveError:
    # A tenth of the queue gone is room enough to come back for.
    per_second = max(ended_per_minute / 60, 0.1)
    least, most = _RETRY_AFTER_RANGE_S
    wait_s = min(max(queued / 10 / per_second, least), most)
    return StagewaveError(ErrorCode.QUEUE_FULL, "the queue is full", retry_after_s=wait_s)
