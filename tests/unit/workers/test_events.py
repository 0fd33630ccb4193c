"""What listeners are told: in order, without gaps, and to an end."""

from __future__ import annotations

import threading

import redis

from stage_pipeline.stages import Task
from tests.unit.workers.conftest import MakeJob
from workers import keys
from workers.claim_store import ClaimStore
from workers.events import EventLog
from workers.job_store import JobStore
from workers.states import Stage


def finish(claims: ClaimStore) -> None:
    held = claims.claim("thinker.noop", Stage.THINKER, "w")
    assert held is not None
    claims.succeed(held, {}, {})


def test_a_follower_hears_all_and_stops_at_the_end(
    claims: ClaimStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job(Task.ASR)
    heard: list[str] = []
    follower = threading.Thread(target=lambda: heard.extend(e.name for e in events.follow(job.id) if e))
    follower.start()
    events.append(job.id, "text", {"text": "line one\nline two"})
    finish(claims)
    follower.join(timeout=5)
    assert heard == ["status", "text", "status", "stage", "succeeded"]


def test_a_follower_resumes_after_the_last_event_it_saw(
    claims: ClaimStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job(Task.ASR)
    finish(claims)
    everything = [event for event in events.follow(job.id) if event]
    rest = [event for event in events.follow(job.id, after=everything[1].id) if event]
    assert rest == everything[2:]


def test_who_resumes_after_the_end_is_let_go(
    claims: ClaimStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job(Task.ASR)
    finish(claims)
    last = events.read(job.id)[-1]
    assert list(events.follow(job.id, after=last.id, heartbeat_s=0.1)) == []


def test_silence_gives_heartbeats(make_job: MakeJob, events: EventLog) -> None:
    job = make_job()
    follower = events.follow(job.id, after=events.read(job.id)[-1].id, heartbeat_s=0.05)
    assert [next(follower), next(follower)] == [None, None]


def test_who_follows_a_job_that_is_deleted_reads_its_end(
    jobs: JobStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job()
    follower = events.follow(job.id, heartbeat_s=0.05)
    next(follower)
    events.append(job.id, "text", {"text": "what the user said"})
    jobs.delete(job.id)
    assert [(event.name, event.data) for event in follower if event] == [
        ("canceled", {"status": "canceled"})
    ]


def test_who_follows_a_job_of_long_ago_that_is_deleted_is_let_go(
    jobs: JobStore, make_job: MakeJob, events: EventLog, redis_client: redis.Redis
) -> None:
    job = make_job()
    follower = events.follow(job.id, heartbeat_s=0.05)
    next(follower)
    jobs.delete(job.id)
    redis_client.delete(keys.events(job.id))  # as its time does, soon
    assert list(follower) == []


def test_a_late_word_does_not_bring_a_deleted_jobs_events_back(
    jobs: JobStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job()
    jobs.delete(job.id)
    events.append(job.id, "text", {"text": "late"})
    assert [event.name for event in events.read(job.id)] == ["canceled"]


def test_nothing_is_told_after_the_end(claims: ClaimStore, make_job: MakeJob, events: EventLog) -> None:
    job = make_job(Task.ASR)
    finish(claims)
    events.append(job.id, "progress", {"share": 0.5})
    assert events.read(job.id)[-1].name == "succeeded"


def test_an_end_that_comes_between_two_looks_is_not_missed(
    claims: ClaimStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job(Task.ASR)
    seen = events.read(job.id)[-1].id
    finish(claims)
    assert not events._ended_before(job.id, seen)
    assert events._ended_before(job.id, events.read(job.id)[-1].id)
