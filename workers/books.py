"""The books of a running system: is every job where its record says, and is nothing left lying about?

Reads what the rules promise and names each fault. ``repair`` mends what is safe to mend: it never ends a
job and never removes what belongs to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.backend import Backend
from workers.broker import broker_errors, text
from workers.janitor import Janitor
from workers.job import Job
from workers.states import Stage, Status

_LASTING = ("index", "counts", "leases", "deadlines", "ready", "deliveries_due", "pools", "delivery")
"""Keys that stand as long as the system does; a delivery has no TTL while it is owed."""
_LIVING = ("job", "events", "deliveries_of")
"""Keys of a job, which get their TTL when it ends."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` is stable; ``subject`` is a job id, a key or an object."""

    kind: str
    subject: str
    detail: str


class Books:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._client = backend.client

    def faults(self) -> list[Fault]:
        """Every fault there is now. A job that moves while it is read is read again."""
        found = [fault for job_id in self._job_ids() for fault in self._of_job(job_id)]
        return [*found, *self._of_queue(), *self._of_keys(), *self._of_objects()]

    def repair(self, faults: list[Fault], now: float) -> int:
        """How many of ``faults`` were mended; ``now`` in Unix seconds."""
        mended = 0
        for fault in faults:
            match fault.kind:
                case "stage_without_lease":
                    job_id, stage = fault.subject.split("|")
                    self._expire_lease(job_id, stage)
                case "stage_not_in_queue":
                    job_id, stage = fault.subject.split("|")
                    self._put_into_queue(job_id, Stage(stage))
                case "key_without_ttl":
                    with broker_errors():
                        self._client.expire(fault.subject, int(self._backend.settings.job_retention_s))
                case "webhook_not_due":
                    with broker_errors():
                        self._client.zadd(keys.CONTROL_PREFIXES["deliveries_due"], {fault.subject: 0})
                case "name_without_record" | "orphan_object" | "open_upload":
                    continue  # the sweep below takes all of these
                case _:
                    continue
            mended += 1
        swept = [f for f in faults if f.kind in ("name_without_record", "orphan_object", "open_upload")]
        if swept:
            Janitor(self._backend).sweep(now, grace_s=0)
        return mended + len(swept)

    # -- jobs ----------------------------------------------------------------------------------------

    def _job_ids(self) -> list[str]:
        with broker_errors():
            return [text(i) for i in cast(list[bytes], self._client.zrange(keys.index("all"), 0, -1))]

    def _of_job(self, job_id: str) -> list[Fault]:
        # Twice: a fault that is one for a moment only, between two reads, is none.
        first = list(self._look_at(job_id))
        return [fault for fault in self._look_at(job_id) if fault in first] if first else []

    def _look_at(self, job_id: str) -> Iterator[Fault]:
        try:
            job = self._backend.jobs.get(job_id)
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:
                yield Fault("name_without_record", job_id, "the index names a job that has no record")
            if error.code in (ErrorCode.NOT_FOUND, ErrorCode.GONE):
                return
            raise
        yield from self._look_at_index(job)
        if job.status.terminal:
            yield from self._look_at_ended(job)
        else:
            yield from self._look_at_going(job)

    def _look_at_index(self, job: Job) -> Iterator[Fault]:
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for status in Status:
                pipe.zscore(keys.index(f"status:{status}"), job.id)
            named = [s for s, score in zip(Status, pipe.execute(), strict=True) if score is not None]
        if named != [job.status]:
            yield Fault("wrong_index", job.id, f"{job.status} in the record, {named} in the index")

    def _look_at_ended(self, job: Job) -> Iterator[Fault]:
        ends = [event.name for event in self._backend.events.read(job.id, limit=20_000) if event.terminal]
        if ends != [job.status.value]:
            yield Fault("wrong_end", job.id, f"{job.status} in the record, {ends} told")
        if job.status is Status.SUCCEEDED:
            yield from self._look_at_result(job)
        if job.spec.webhook is not None and f"job.{job.status}" in job.spec.webhook.events:
            told = [d for d in self._backend.deliveries.of_job(job.id) if d.event == f"job.{job.status}"]
            if len(told) != 1:
                yield Fault("wrong_webhooks", job.id, f"{len(told)} deliveries of its end")

    def _look_at_result(self, job: Job) -> Iterator[Fault]:
        result = job.result or {}
        audio = result.get("audio")
        if audio is None and Stage.TOKEN2WAV in job.spec.stages:
            yield Fault("no_result", job.id, "succeeded without audio")
        if isinstance(audio, dict):
            size = self._backend.objects.size(str(result["audio_key"]))
            if size != audio["size_bytes"]:
                yield Fault("wrong_object", job.id, f"{audio['size_bytes']} bytes promised, {size} stored")
        transcript = result.get("transcript_key")
        if isinstance(transcript, str) and self._backend.objects.size(transcript) is None:
            yield Fault("wrong_object", job.id, "its transcript is not stored")

    def _look_at_going(self, job: Job) -> Iterator[Fault]:
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.job(job.id)))
        states = {s: record.get(f"state:{s}".encode(), b"").decode() for s in job.spec.stages}
        if not set(states.values()) & {"ready", "running", "parked"}:
            yield Fault("stuck", job.id, f"{job.status}, and no stage is to run")
        for stage, state in states.items():
            name = f"{job.id}|{stage}"
            with broker_errors():
                queued = self._client.zscore(keys.ready(job.spec.pool(stage)), job.id) is not None
                leased = self._client.zscore(keys.CONTROL_PREFIXES["leases"], name) is not None
            if state == "ready" and not queued:
                yield Fault("stage_not_in_queue", name, "ready, and not in its pool's queue")
            if state in ("running", "parked") and not leased:
                yield Fault("stage_without_lease", name, f"{state}, and nothing would take it back")

    # -- everything else -----------------------------------------------------------------------------

    def _of_queue(self) -> Iterator[Fault]:
        with broker_errors():
            due = cast(list[bytes], self._client.zrange(keys.CONTROL_PREFIXES["deliveries_due"], 0, -1))
            prefix = keys.CONTROL_PREFIXES["delivery"]
            for key in self._client.scan_iter(match=keys.starting_with(prefix), count=1000):
                name = text(key)[len(prefix) :]
                if self._client.hget(key, "state") == b"due" and name.encode() not in due:
                    yield Fault("webhook_not_due", name, "owed, and nobody would send it")

    def _of_keys(self) -> Iterator[Fault]:
        lasting = (keys.CELERY_PREFIX, *(keys.CONTROL_PREFIXES[name] for name in _LASTING))
        with broker_errors():
            for key in self._client.scan_iter(match="sw:*", count=1000):
                name = text(key)
                if not name.startswith(lasting) and self._client.ttl(key) == -1 and not self._lives(name):
                    yield Fault("key_without_ttl", name, "nothing would remove it")

    def _lives(self, key: str) -> bool:
        """Whether it belongs to a job that has not ended."""
        for name in _LIVING:
            prefix = keys.CONTROL_PREFIXES[name]
            if key.startswith(prefix):
                return self._is_going(key[len(prefix) :])
        return False

    def _is_going(self, job_id: str) -> bool:
        status = self._backend.jobs.status(job_id)
        return status is not None and not status.terminal

    def _of_objects(self) -> Iterator[Fault]:
        for key in Janitor(self._backend).orphans(grace_s=0, now=float("inf")):
            yield Fault("orphan_object", key, "it belongs to no job")
        for key in self._backend.objects.open_uploads():
            yield Fault("open_upload", key, "its upload was never ended")

    # -- mending -------------------------------------------------------------------------------------

    def _expire_lease(self, job_id: str, stage: str) -> None:
        """As if its worker were lost: the scheduler then does what is right."""
        with broker_errors():
            self._client.zadd(keys.CONTROL_PREFIXES["leases"], {f"{job_id}|{stage}": 1}, nx=True)

    def _put_into_queue(self, job_id: str, stage: Stage) -> None:
        job = self._backend.jobs.get(job_id)
        score = -job.spec.priority * 1e13 + job.created_at * 1000
        with broker_errors():
            self._client.zadd(keys.ready(job.spec.pool(stage)), {job_id: score}, nx=True)
