"""What becomes of jobs that nobody holds, on a real broker."""

from __future__ import annotations

import time

import redis

from tests.unit.workers.conftest import (
    BROKEN,
    THINKER,
    MakeJob,
    claim,
    expire_leases,
    terminal_events,
)
from workers import keys
from workers.claim_store import ClaimStore
from workers.events import EventLog
from workers.job_store import JobStore
from workers.job_upkeep import JobUpkeep
from workers.settings import Settings
from workers.states import Stage, Status


def test_a_lost_lease_queues_the_next_attempt(
    claims: ClaimStore, upkeep: JobUpkeep, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job()
    claim(claims)
    expire_leases(redis_client)
    assert upkeep.reap() == (1, {THINKER})
    second = claim(claims)
    assert (second.job.id, second.attempt) == (job.id, 2)


def test_a_job_that_kills_its_workers_fails_after_the_last_attempt(
    jobs: JobStore,
    claims: ClaimStore,
    upkeep: JobUpkeep,
    make_job: MakeJob,
    redis_client: redis.Redis,
    events: EventLog,
    settings: Settings,
) -> None:
    job = make_job()
    for _ in range(settings.max_attempts):
        claim(claims)
        expire_leases(redis_client)
        upkeep.reap()
    ended = jobs.get(job.id)
    assert ended.status is Status.FAILED
    assert ended.error == {
        "code": "worker_lost",
        "message": "the workers of this job were lost again and again",
        "stage": "thinker",
        "retryable": True,
    }
    assert terminal_events(events, job) == ["failed"]


def test_a_retryable_failure_waits_before_it_is_tried_again(
    claims: ClaimStore, upkeep: JobUpkeep, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job()
    assert claims.fail(claim(claims), BROKEN) is False
    assert upkeep.reap() == (0, set())
    assert claims.claim(THINKER, Stage.THINKER, "w") is None
    expire_leases(redis_client)
    assert upkeep.reap() == (0, {THINKER})
    assert claim(claims).job.id == job.id


def test_retryable_failures_end_too(
    jobs: JobStore,
    claims: ClaimStore,
    upkeep: JobUpkeep,
    make_job: MakeJob,
    redis_client: redis.Redis,
    settings: Settings,
) -> None:
    job = make_job()
    outcomes = []
    for _ in range(settings.max_attempts):
        outcomes.append(claims.fail(claim(claims), BROKEN))
        expire_leases(redis_client)
        upkeep.reap()
    assert outcomes == [False, False, True]
    assert jobs.get(job.id).status is Status.FAILED


def test_a_deadline_ends_a_job_wherever_it_is(
    jobs: JobStore, claims: ClaimStore, upkeep: JobUpkeep, make_job: MakeJob
) -> None:
    queued, running = make_job(deadline_s=0.05), make_job(deadline_s=0.05, priority=1)
    held = claim(claims)
    assert held.job.id == running.id
    time.sleep(0.1)
    upkeep.reap()
    for job in (queued, running):
        ended = jobs.get(job.id)
        assert ended.status is Status.FAILED
        assert ended.error and ended.error["code"] == "deadline_exceeded"
    assert claims.renew([held]) == [0]


def test_names_of_expired_jobs_are_swept_from_every_index(
    jobs: JobStore, upkeep: JobUpkeep, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    kept, expired = make_job(batch_id="b"), make_job(batch_id="b")
    redis_client.delete(keys.job(expired.id))
    assert upkeep.forget_expired("job_~") == 4  # all, status, type, batch
    assert [job.id for job in jobs.page(batch="b")[0]] == [kept.id]
