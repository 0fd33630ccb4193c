"""The moves of an attempt, for the worker that has claimed it. Each is one script, and refused to whom the
claim no longer holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import redis

from stage_pipeline.errors import StagewaveError
from workers import keys
from workers.broker import Scripts, dumped, pairs, text
from workers.job import Job, JsonObject
from workers.job_streams import JobStreams
from workers.settings import Settings
from workers.states import Stage


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt's right to work on a job: the attempt number is the fence of all it does.

    ``suspect``: an earlier attempt lost its worker or failed, so this job may be the one that kills.
    ``listening``: somebody listened when it was claimed."""

    job: Job
    stage: Stage
    attempt: int
    suspect: bool = False
    listening: bool = False


class ClaimStore:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away or full."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._scripts = Scripts(client)
        self._streams = JobStreams(client)
        self._lease_ms = int(settings.lease_s * 1000)
        self._retention_ms = int(settings.job_retention_s * 1000)

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
        attempt = int(fields[f"attempt:{stage}"])
        return Claim(Job.from_hash(fields), stage, attempt, suspect, "listening" in fields)

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
        args = (*_name(claim), dumped(result), dumped(usage), self._retention_ms)
        return self._scripts.run("succeed", args=args) == 1

    def fail(self, claim: Claim, error: StagewaveError) -> bool:
        """Try again later when that can help and attempts are left, else end the job; whether it ended."""
        retryable = error.code.retryable
        body = failure(error, claim.stage)
        args = (*_name(claim), dumped(body), self._retention_ms, int(retryable))
        ended = self._scripts.run("fail", args=args) == 1
        if ended:
            self._streams.drop(claim.job.id)
        return ended

    def release(self, claim: Claim) -> str | None:
        """Hand the job back unharmed (a worker that stops); the pool to ring."""
        answer = cast(list[object], self._scripts.run("release", args=(*_name(claim), self._retention_ms)))
        return text(answer[1]) if answer[0] == 1 else None


def _name(claim: Claim) -> tuple[str, str, int]:
    return claim.job.id, claim.stage.value, claim.attempt


def failure(error: StagewaveError, stage: Stage | None = None) -> JsonObject:
    """The ``error`` of a job's record."""
    return {
        "code": error.code.code,
        "message": error.message,
        "stage": stage.value if stage else None,
        "retryable": error.code.retryable,
    }
