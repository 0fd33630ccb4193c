"""The queue side on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from stage_pipeline.stages import Task
from workers.broker import connect, connect_blocking
from workers.events import EventLog
from workers.job import AudioSource, Job, JobSpec, WebhookTarget, new_job_id
from workers.job_store import JobStore
from workers.settings import Settings

HOOK = WebhookTarget(
    "http://127.0.0.1:9/hook", ("job.started", "job.succeeded", "job.failed", "job.canceled")
)

MakeJob = Callable[..., Job]


@pytest.fixture
def redis_client(redis_client: redis.Redis, broker_url: str) -> redis.Redis:
    """The emptied broker, through a client as our processes have it."""
    return connect(broker_url)


@pytest.fixture
def jobs(redis_client: redis.Redis, settings: Settings) -> JobStore:
    return JobStore(redis_client, settings)


@pytest.fixture
def blocking(broker_url: str) -> redis.Redis:
    return connect_blocking(broker_url)


@pytest.fixture
def events(redis_client: redis.Redis, blocking: redis.Redis) -> EventLog:
    return EventLog(redis_client, blocking)


@pytest.fixture
def make_job(jobs: JobStore) -> MakeJob:
    def make(task: Task = Task.TTS, **options: object) -> Job:
        spec = {"type": task, "model": "noop", "text": "hello" if task is Task.TTS else ""}
        if task is not Task.TTS:
            spec["audio"] = AudioSource("upload", size_bytes=1)
        return jobs.create(new_job_id(), JobSpec(**(spec | options)))[0]

    return make
