"""What clients do to jobs, on a real broker: each is made once, ends once, and is where it is listed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from tests.unit.workers.conftest import (
    THINKER,
    TOKEN2WAV,
    MakeJob,
    claim,
    terminal_events,
)
from workers import keys
from workers.claim_store import ClaimStore
from workers.events import EventLog
from workers.idempotency import Idempotency
from workers.job import JobSpec, new_job_id
from workers.job_counts import JobCounts
from workers.job_store import JobStore
from workers.settings import Settings
from workers.states import Stage, Status

# -- making ------------------------------------------------------------------------------------------


def test_a_new_job_is_queued_for_its_first_stage(counts: JobCounts, make_job: MakeJob) -> None:
    job = make_job()
    assert (job.status, job.stage) == (Status.QUEUED, Stage.THINKER)
    assert counts.queue_depths([THINKER, TOKEN2WAV]) == {THINKER: 1, TOKEN2WAV: 0}


def test_one_idempotency_key_makes_one_job_however_many_ask_at_once(
    jobs: JobStore, counts: JobCounts
) -> None:
    spec = JobSpec(Task.TTS, "noop", text="x")
    ids: list[tuple[str, bool]] = []

    def create() -> None:
        job, made = jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "same"))
        ids.append((job.id, made))

    threads = [threading.Thread(target=create) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job_id for job_id, _ in ids}) == 1
    assert sum(made for _, made in ids) == 1
    assert counts.queue_depths([THINKER]) == {THINKER: 1}


def test_a_key_with_another_request_is_refused_also_after_the_job_ended(
    jobs: JobStore, claims: ClaimStore
) -> None:
    spec = JobSpec(Task.ASR, "noop")
    first, _ = jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "one"))
    claims.succeed(claim(claims), {}, {})
    with pytest.raises(StagewaveError) as caught:
        jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "two"))
    assert caught.value.code is ErrorCode.IDEMPOTENCY_MISMATCH
    again, made = jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "one"))
    assert (again.id, made) == (first.id, False)


def test_a_create_whose_answer_was_lost_can_be_tried_again(jobs: JobStore, counts: JobCounts) -> None:
    job_id, spec = new_job_id(), JobSpec(Task.TTS, "noop", text="x")
    assert [jobs.create(job_id, spec)[1] for _ in range(2)] == [True, True]
    assert counts.queue_depths([THINKER]) == {THINKER: 1}


def test_a_full_queue_says_when_to_come_back(redis_client: redis.Redis, settings: Settings) -> None:
    jobs = JobStore(redis_client, replace(settings, queue_limit=2))
    for _ in range(2):
        jobs.create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))
    with pytest.raises(StagewaveError) as caught:
        jobs.create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))
    assert caught.value.code is ErrorCode.QUEUE_FULL
    assert caught.value.retry_after_s and caught.value.retry_after_s >= 1


# -- canceling and deleting --------------------------------------------------------------------------


def test_a_canceled_job_leaves_the_queue(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob, events: EventLog
) -> None:
    job = make_job()
    assert jobs.cancel(job.id).status is Status.CANCELED
    assert jobs.cancel(job.id).status is Status.CANCELED
    assert claims.claim(THINKER, Stage.THINKER, "w") is None
    assert terminal_events(events, job) == ["canceled"]


def test_canceling_between_the_stages_keeps_the_second_from_starting(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob
) -> None:
    job = make_job()
    claims.start_next(claim(claims), done=True, streamed=False)
    jobs.cancel(job.id)
    assert claims.claim(TOKEN2WAV, Stage.TOKEN2WAV, "w") is None


def test_canceling_a_running_job_takes_its_lease(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob
) -> None:
    job = make_job()
    held = claim(claims)
    jobs.cancel(job.id)
    assert claims.renew([held]) == [0]
    assert claims.succeed(held, {}, {}) is False


def test_cancel_and_completion_at_the_same_moment_give_one_end(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob, events: EventLog
) -> None:
    for _ in range(100):
        job = make_job(Task.ASR)
        held = claim(claims)
        thread = threading.Thread(target=claims.succeed, args=(held, {}, {}))
        thread.start()
        try:
            jobs.cancel(job.id)
        except StagewaveError as error:
            assert error.code is ErrorCode.JOB_FINISHED
        thread.join()
        ended = jobs.get(job.id)
        assert ended.status.terminal
        assert terminal_events(events, job) == [ended.status.value]


def test_a_finished_job_cannot_be_canceled(jobs: JobStore, claims: ClaimStore, make_job: MakeJob) -> None:
    job = make_job(Task.ASR)
    claims.succeed(claim(claims), {}, {})
    with pytest.raises(StagewaveError) as caught:
        jobs.cancel(job.id)
    assert caught.value.code is ErrorCode.JOB_FINISHED
    assert jobs.get(job.id).status is Status.SUCCEEDED


def test_a_deleted_job_is_gone_and_does_not_come_back(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job(Task.ASR, text="private words")
    held = claim(claims)
    jobs.delete(job.id)
    assert claims.succeed(held, {"text": "private words"}, {}) is False
    with pytest.raises(StagewaveError) as caught:
        jobs.get(job.id)
    assert caught.value.code is ErrorCode.GONE
    assert jobs.page()[0] == []
    tombstone = redis_client.hgetall(keys.job(job.id))
    assert not any(b"private words" in value for value in tombstone.values())
    assert 0 < redis_client.ttl(keys.job(job.id)) <= 3600


def test_an_unknown_job_is_not_found(jobs: JobStore) -> None:
    for call in (jobs.get, jobs.cancel, jobs.delete):
        with pytest.raises(StagewaveError) as caught:
            call(new_job_id())
        assert caught.value.code is ErrorCode.NOT_FOUND


# -- listing -----------------------------------------------------------------------------------------


def test_pages_are_newest_first_and_hold_every_job_once(jobs: JobStore, make_job: MakeJob) -> None:
    made = []
    for _ in range(7):
        made.append(make_job().id)
        time.sleep(0.002)  # ids of one millisecond have no order
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = jobs.page(after=cursor, limit=3)
        seen += [job.id for job in page]
        if cursor is None:
            break
    assert seen == made[::-1]


def test_filters_combine(jobs: JobStore, make_job: MakeJob) -> None:
    spoken, heard = make_job(Task.TTS), make_job(Task.ASR)
    jobs.cancel(heard.id)
    assert [job.id for job in jobs.page(status="canceled")[0]] == [heard.id]
    assert [job.id for job in jobs.page(status="canceled", type="tts")[0]] == []
    assert [job.id for job in jobs.page(type="tts")[0]] == [spoken.id]
