"""The books of a running system: is every job where its record says, and is nothing left lying about?

Reads what the rules promise and names each fault. ``repair`` mends what is safe to mend: it never ends a
job and never removes what belongs to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.backend import Backend
from workers.batch import is_batch_id
from workers.broker import broker_errors, broker_time, text
from workers.janitor import Janitor
from workers.job import Job
from workers.states import Stage, Status

_LASTING = (
    *("index", "counts", "leases", "deadlines", "ready", "deliveries_due", "pools", "delivery"),
    *("voice", "voice_names", "voices", "voices_due", "voices_deleted", "voice_jobs"),
    *("batch", "batches", "batches_going", "file", "files"),
)
"""Keys that stand as long as the system does, or as what they are about; a delivery has no TTL while it is
owed."""
_OF_JOBS = ("job", "events", "deliveries_of")
"""Keys of a job, which get their TTL when it ends."""
_PASSING = ("idempotency", "finished", "pool")
"""Keys that have a TTL from the first."""

GRACE_S = 300.0
"""What is younger may belong to a job that is about to be made, or to an upload on its way."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` is stable; ``subject`` is a job id, a key or an object."""

    kind: str
    subject: str
    detail: str


class Books:
    def __init__(self, backend: Backend, grace_s: float = GRACE_S) -> None:
        """``grace_s``: how long an object or an upload may belong to no job; 0 where nothing goes on."""
        self._backend = backend
        self._client = backend.client
        self._grace_s = grace_s

    def faults(self) -> list[Fault]:
        """Every fault there is now."""
        looks: list[Callable[[], Iterator[Fault]]]
        looks = [partial(self._of_job, job_id) for job_id in self._job_ids()]
        looks += [self._of_queue, self._of_keys, self._of_objects]
        return [fault for look in looks for fault in _lasting(look)]

    def repair(self, faults: list[Fault]) -> int:
        """How many of ``faults`` were mended."""
        mended = sum(self._mend(fault) for fault in faults)
        if any(fault.kind in _SWEPT for fault in faults):
            Janitor(self._backend).sweep(self._now(), self._grace_s)
        return mended

    def _mend(self, fault: Fault) -> bool:
        """Those that the sweep mends count too."""
        upkeep, subject = self._backend.upkeep, fault.subject
        job_id, _, stage = subject.partition("|")
        match fault.kind:
            case "stage_without_lease":
                # As if its worker were lost: the scheduler then does what is right.
                self._add("leases", subject, 1)
            case "stage_not_in_queue":
                upkeep.requeue(job_id, Stage(stage))
            case "wrong_index":
                upkeep.reindex(job_id)
            case "no_deadline":
                self._add("deadlines", job_id, 1000 * (self._now() + self._backend.settings.job_deadline_s))
            case "webhook_not_due":
                self._add("deliveries_due", subject, 0)
            case "key_without_ttl":
                with broker_errors():
                    self._client.expire(subject, int(self._backend.settings.job_retention_s))
            case _:
                return fault.kind in _SWEPT
        return True

    def _add(self, name: str, member: str, score: float) -> None:
        with broker_errors():
            self._client.zadd(keys.CONTROL_PREFIXES[name], {member: score}, nx=True)

    def _now(self) -> float:
        return broker_time(self._client)

    # -- jobs ----------------------------------------------------------------------------------------

    def _job_ids(self) -> list[str]:
        with broker_errors():
            return [text(i) for i in cast(list[bytes], self._client.zrange(keys.index("all"), 0, -1))]

    def _of_job(self, job_id: str) -> Iterator[Fault]:
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
        with broker_errors():
            if self._client.zscore(keys.CONTROL_PREFIXES["deadlines"], job.id) is None:
                yield Fault("no_deadline", job.id, "nothing would ever end it")
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
        lasting, of_jobs = _prefixes(_LASTING), _prefixes(_OF_JOBS)
        known = (keys.JOB_TAG, keys.LEADER, keys.FEEDER, *of_jobs, *_prefixes(_PASSING))
        with broker_errors():
            for key in self._client.scan_iter(match="sw:*", count=1000):
                name = text(key)
                if name.startswith((keys.CELERY_PREFIX, *lasting)):
                    continue
                prefix = next((prefix for prefix in of_jobs if name.startswith(prefix)), None)
                job_id = name.removeprefix(prefix or "")
                if prefix == keys.CONTROL_PREFIXES["job"] and not self._is_named(job_id):
                    yield Fault("wrong_index", job_id, "no index names it")
                if self._client.ttl(key) != -1 or prefix and self._is_going(job_id):
                    continue
                # Of a key that we do not know, nobody can say that it may go.
                kind = "key_without_ttl" if name.startswith(known) else "unknown_key"
                yield Fault(kind, name, "nothing would remove it")

    def _is_named(self, job_id: str) -> bool:
        deleted = self._client.hexists(keys.job(job_id), "deleted")
        return deleted or self._client.zscore(keys.index("all"), job_id) is not None

    def _is_going(self, job_id: str) -> bool:
        if is_batch_id(job_id):  # events and webhooks are those of a job or of a batch
            return self._client.zscore(keys.CONTROL_PREFIXES["batches_going"], job_id) is not None
        status = self._backend.jobs.status(job_id)
        return status is not None and not status.terminal

    def _of_objects(self) -> Iterator[Fault]:
        now = self._now()
        for key in Janitor(self._backend).orphans(now, self._grace_s):
            yield Fault("orphan_object", key, "it belongs to nothing")
        for key in self._backend.objects.open_uploads(self._grace_s, now):
            yield Fault("open_upload", key, "its upload was never ended")


_SWEPT = ("name_without_record", "orphan_object", "open_upload")


def _prefixes(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(keys.CONTROL_PREFIXES[name] for name in names)


def _lasting(look: Callable[[], Iterator[Fault]]) -> list[Fault]:
    """What is a fault for a moment only, between two reads, is none."""
    first = list(look())
    return [fault for fault in look() if fault in first] if first else []
