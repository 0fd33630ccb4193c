"""The queue side on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers import keys
from workers.broker import connect, connect_blocking
from workers.claim_store import Claim, ClaimStore
from workers.events import EventLog
from workers.job import AudioSource, Job, JobSpec, WebhookTarget, new_job_id
from workers.job_counts import JobCounts
from workers.job_store import JobStore
from workers.job_upkeep import JobUpkeep
from workers.object_store import ObjectStore
from workers.settings import Settings
from workers.states import Stage

HOOK = WebhookTarget(
    "http://127.0.0.1:9/hook", ("job.started", "job.succeeded", "job.failed", "job.canceled")
)

THINKER, TOKEN2WAV = "thinker.noop", "token2wav.noop"
BROKEN = StagewaveError(ErrorCode.ENGINE_FAILED, "broken")

MakeJob = Callable[..., Job]


def claim(claims: ClaimStore, pool: str = THINKER, stage: Stage = Stage.THINKER) -> Claim:
    found = claims.claim(pool, stage, "worker")
    assert found is not None
    return found


def expire_leases(client: redis.Redis) -> None:
    names = client.zrange(keys.CONTROL_PREFIXES["leases"], 0, -1)
    if names:
        client.zadd(keys.CONTROL_PREFIXES["leases"], dict.fromkeys(names, 1))


def terminal_events(events: EventLog, job: Job) -> list[str]:
    return [event.name for event in events.read(job.id) if event.terminal]


@pytest.fixture
def redis_client(redis_client: redis.Redis, broker_url: str) -> redis.Redis:
    """The emptied broker, through a client as our processes have it."""
    return connect(broker_url)


@pytest.fixture
def jobs(redis_client: redis.Redis, settings: Settings) -> JobStore:
    return JobStore(redis_client, settings)


@pytest.fixture
def claims(redis_client: redis.Redis, settings: Settings) -> ClaimStore:
    return ClaimStore(redis_client, settings)


@pytest.fixture
def upkeep(redis_client: redis.Redis, settings: Settings) -> JobUpkeep:
    return JobUpkeep(redis_client, settings)


@pytest.fixture
def counts(redis_client: redis.Redis) -> JobCounts:
    return JobCounts(redis_client)


@pytest.fixture
def blocking(broker_url: str) -> redis.Redis:
    return connect_blocking(broker_url)


@pytest.fixture
def events(redis_client: redis.Redis, blocking: redis.Redis) -> EventLog:
    return EventLog(redis_client, blocking)


@pytest.fixture
def objects(settings: Settings) -> Iterator[ObjectStore]:
    store = ObjectStore(settings)
    yield store
    store.delete_prefix("test/")


@pytest.fixture
def make_job(jobs: JobStore) -> MakeJob:
    def make(task: Task = Task.TTS, **options: object) -> Job:
        spec = {"type": task, "model": "noop", "text": "hello" if task is Task.TTS else ""}
        if task is not Task.TTS:
            spec["audio"] = AudioSource("upload", size_bytes=1)
        return jobs.create(new_job_id(), JobSpec(**(spec | options)))[0]

    return make
