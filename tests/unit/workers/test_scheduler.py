"""When the scheduler takes back what a lost worker held."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from tests.unit.workers.conftest import MakeJob
from workers import keys
from workers.backend import connect_backend
from workers.claim_store import ClaimStore
from workers.job_upkeep import JobUpkeep
from workers.scheduler import Scheduler
from workers.settings import Settings
from workers.states import Stage

LEASE_S = 3.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(connect_backend(replace(settings, lease_s=LEASE_S)), ("thinker.noop",), clock)
    monkeypatch.setattr(made._janitor, "sweep", lambda now: None)
    return made


def lose(client: redis.Redis, claims: ClaimStore) -> str:
    held = claims.claim("thinker.noop", Stage.THINKER, "w")
    assert held is not None
    client.zadd(keys.CONTROL_PREFIXES["leases"], {f"{held.job.id}|thinker": 1})
    return held.job.id


def is_ready(client: redis.Redis, job_id: str) -> bool:
    return client.hget(keys.job(job_id), "state:thinker") == b"ready"


def test_a_lost_lease_is_taken_back_at_the_next_step(
    scheduler: Scheduler, claims: ClaimStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    make_job()
    scheduler.tick()
    job_id = lose(redis_client, claims)
    scheduler.tick()
    assert is_ready(redis_client, job_id)


def test_after_the_broker_was_away_workers_get_the_time_to_renew(
    scheduler: Scheduler, clock: Clock, claims: ClaimStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    make_job()
    scheduler.tick()
    job_id = lose(redis_client, claims)
    clock.now += LEASE_S  # in which the broker gave no answer
    for _ in range(3):
        scheduler.tick()
        assert not is_ready(redis_client, job_id)
        clock.now += LEASE_S / 3
    scheduler.tick()
    assert is_ready(redis_client, job_id)


def test_a_lease_from_before_the_brokers_clock_was_set_back_runs_out_within_a_minute(
    claims: ClaimStore, upkeep: JobUpkeep, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    make_job()
    job_id = lose(redis_client, claims)
    leases = keys.CONTROL_PREFIXES["leases"]
    now_ms = redis_client.time()[0] * 1000
    redis_client.zadd(leases, {f"{job_id}|thinker": now_ms + 5 * 3_600_000})
    upkeep.reap()
    left_ms = (redis_client.zscore(leases, f"{job_id}|thinker") or 0) - now_ms
    assert left_ms <= 62_000
