"""The rules of a job's life, each on a real broker: one way through the states, one holder at a time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from tests.unit.workers.conftest import HOOK, MakeJob
from workers import keys
from workers.events import EventLog
from workers.job import Job, JobSpec, new_job_id
from workers.job_store import Claim, Idempotency, JobStore
from workers.settings import Settings
from workers.states import Stage, Status

THINKER, TOKEN2WAV = "thinker.noop", "token2wav.noop"
BROKEN = StagewaveError(ErrorCode.ENGINE_FAILED, "broken")
BAD_INPUT = StagewaveError(ErrorCode.NOT_AUDIO, "no audio")


def claim(jobs: JobStore, pool: str = THINKER, stage: Stage = Stage.THINKER) -> Claim:
    found = jobs.claim(pool, stage, "worker")
    assert found is not None
    return found


def terminal_events(events: EventLog, job: Job) -> list[str]:
    return [event.name for event in events.read(job.id) if event.terminal]


# -- making ------------------------------------------------------------------------------------------


def test_a_new_job_is_queued_for_its_first_stage(jobs: JobStore, make_job: MakeJob) -> None:
    job = make_job()
    assert (job.status, job.stage) == (Status.QUEUED, Stage.THINKER)
    assert jobs.queue_depths([THINKER, TOKEN2WAV]) == {THINKER: 1, TOKEN2WAV: 0}


def test_one_idempotency_key_makes_one_job_however_many_ask_at_once(jobs: JobStore) -> None:
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
    assert jobs.queue_depths([THINKER]) == {THINKER: 1}


def test_a_key_with_another_request_is_refused_also_after_the_job_ended(jobs: JobStore) -> None:
    spec = JobSpec(Task.ASR, "noop")
    first, _ = jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "one"))
    jobs.succeed(claim(jobs), {}, {})
    with pytest.raises(StagewaveError) as caught:
        jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "two"))
    assert caught.value.code is ErrorCode.IDEMPOTENCY_MISMATCH
    again, made = jobs.create(new_job_id(), spec, idempotency=Idempotency("key", "one"))
    assert (again.id, made) == (first.id, False)


def test_a_create_whose_answer_was_lost_can_be_tried_again(jobs: JobStore) -> None:
    job_id, spec = new_job_id(), JobSpec(Task.TTS, "noop", text="x")
    assert [jobs.create(job_id, spec)[1] for _ in range(2)] == [True, True]
    assert jobs.queue_depths([THINKER]) == {THINKER: 1}


def test_a_full_queue_says_when_to_come_back(redis_client: redis.Redis, settings: Settings) -> None:
    jobs = JobStore(redis_client, replace(settings, queue_limit=2))
    for _ in range(2):
        jobs.create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))
    with pytest.raises(StagewaveError) as caught:
        jobs.create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))
    assert caught.value.code is ErrorCode.QUEUE_FULL
    assert caught.value.retry_after_s and caught.value.retry_after_s >= 1


# -- claiming ----------------------------------------------------------------------------------------


def test_high_priority_starts_next_then_age_decides(jobs: JobStore, make_job: MakeJob) -> None:
    oldest = make_job(priority=-5)
    time.sleep(0.002)  # age counts in milliseconds
    for _ in range(200):
        make_job(priority=-5)
    plain = make_job()
    high = make_job(priority=9)
    assert [claim(jobs).job.id for _ in range(3)] == [high.id, plain.id, oldest.id]


def test_one_job_is_claimed_once_however_many_workers_ask(jobs: JobStore, make_job: MakeJob) -> None:
    for _ in range(20):
        make_job()
    claims: list[str] = []

    def work() -> None:
        while (found := jobs.claim(THINKER, Stage.THINKER, "w")) is not None:
            claims.append(found.job.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == len(set(claims)) == 20


def test_an_empty_pool_gives_nothing(jobs: JobStore) -> None:
    assert jobs.claim(THINKER, Stage.THINKER, "w") is None


# -- the two stages ----------------------------------------------------------------------------------


def test_token2wav_is_queued_once_though_asked_for_at_the_first_chunk_and_at_the_end(
    jobs: JobStore, make_job: MakeJob
) -> None:
    make_job()
    thinking = claim(jobs)
    assert jobs.start_next(thinking, done=False, streamed=True) == (True, TOKEN2WAV)
    assert jobs.start_next(thinking, done=True, streamed=False) == (True, None)
    assert jobs.queue_depths([TOKEN2WAV]) == {TOKEN2WAV: 1}
    assert claim(jobs, TOKEN2WAV, Stage.TOKEN2WAV).job.streamed


def test_saying_done_twice_is_no_loss(jobs: JobStore, make_job: MakeJob) -> None:
    make_job()
    thinking = claim(jobs)
    assert jobs.start_next(thinking, done=True, streamed=False) == (True, TOKEN2WAV)
    assert jobs.start_next(thinking, done=True, streamed=False) == (True, None)


def test_asr_succeeds_without_token2wav(jobs: JobStore, make_job: MakeJob) -> None:
    job = make_job(Task.ASR)
    assert jobs.succeed(claim(jobs), {"text": "x"}, {"audio_in_s": 2.0})
    ended = jobs.get(job.id)
    assert (ended.status, ended.result) == (Status.SUCCEEDED, {"text": "x"})
    assert ended.expires_at is not None


# -- fences ------------------------------------------------------------------------------------------


def expire_leases(client: redis.Redis) -> None:
    names = client.zrange(keys.CONTROL_PREFIXES["leases"], 0, -1)
    if names:
        client.zadd(keys.CONTROL_PREFIXES["leases"], dict.fromkeys(names, 1))


def test_a_lost_lease_queues_the_next_attempt(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job()
    claim(jobs)
    expire_leases(redis_client)
    assert jobs.reap() == (1, {THINKER})
    second = claim(jobs)
    assert (second.job.id, second.attempt) == (job.id, 2)


def test_a_sleeper_that_wakes_up_changes_nothing(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis, events: EventLog
) -> None:
    job = make_job(Task.ASR)
    sleeper = claim(jobs)
    expire_leases(redis_client)
    jobs.reap()
    second = claim(jobs)
    assert jobs.renew([sleeper, second]) == [0, 1]
    assert jobs.succeed(sleeper, {"text": "stale"}, {}) is False
    assert jobs.fail(sleeper, BROKEN) is False
    assert jobs.start_next(sleeper, done=True, streamed=False) == (False, None)
    assert jobs.release(sleeper) is None
    assert jobs.get(job.id).status is Status.RUNNING
    assert jobs.succeed(second, {"text": "fresh"}, {})
    assert jobs.get(job.id).result == {"text": "fresh"}
    assert terminal_events(events, job) == ["succeeded"]


def test_renewing_keeps_the_lease(redis_client: redis.Redis, settings: Settings) -> None:
    jobs = JobStore(redis_client, replace(settings, lease_s=0.3))
    jobs.create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))
    held = claim(jobs)
    for _ in range(4):
        time.sleep(0.15)
        assert jobs.renew([held]) == [1]
        assert jobs.reap() == (0, set())
    time.sleep(0.4)
    assert jobs.reap() == (1, {THINKER})


def test_a_job_that_kills_its_workers_fails_after_the_last_attempt(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis, events: EventLog, settings: Settings
) -> None:
    job = make_job()
    for _ in range(settings.max_attempts):
        claim(jobs)
        expire_leases(redis_client)
        jobs.reap()
    ended = jobs.get(job.id)
    assert ended.status is Status.FAILED
    assert ended.error == {
        "code": "worker_lost",
        "message": "the workers of this job were lost again and again",
        "stage": "thinker",
        "retryable": True,
    }
    assert terminal_events(events, job) == ["failed"]


def test_handing_back_costs_no_attempt(jobs: JobStore, make_job: MakeJob, settings: Settings) -> None:
    job = make_job()
    for _ in range(settings.max_attempts + 2):
        assert jobs.release(claim(jobs)) == THINKER
    assert jobs.get(job.id).status is Status.RUNNING


# -- failing -----------------------------------------------------------------------------------------


def test_bad_input_fails_at_once_and_spends_no_retry(jobs: JobStore, make_job: MakeJob) -> None:
    job = make_job(Task.ASR)
    assert jobs.fail(claim(jobs), BAD_INPUT) is True
    ended = jobs.get(job.id)
    assert ended.status is Status.FAILED and ended.attempts == {"thinker": 1}
    assert ended.error and ended.error["code"] == "not_audio"


def test_a_retryable_failure_waits_before_it_is_tried_again(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job()
    assert jobs.fail(claim(jobs), BROKEN) is False
    assert jobs.reap() == (0, set())
    assert jobs.claim(THINKER, Stage.THINKER, "w") is None
    expire_leases(redis_client)
    assert jobs.reap() == (0, {THINKER})
    assert claim(jobs).job.id == job.id


def test_retryable_failures_end_too(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis, settings: Settings
) -> None:
    job = make_job()
    outcomes = []
    for _ in range(settings.max_attempts):
        outcomes.append(jobs.fail(claim(jobs), BROKEN))
        expire_leases(redis_client)
        jobs.reap()
    assert outcomes == [False, False, True]
    assert jobs.get(job.id).status is Status.FAILED


def test_a_deadline_ends_a_job_wherever_it_is(jobs: JobStore, make_job: MakeJob) -> None:
    queued, running = make_job(deadline_s=0.05), make_job(deadline_s=0.05, priority=1)
    held = claim(jobs)
    assert held.job.id == running.id
    time.sleep(0.1)
    jobs.reap()
    for job in (queued, running):
        ended = jobs.get(job.id)
        assert ended.status is Status.FAILED
        assert ended.error and ended.error["code"] == "deadline_exceeded"
    assert jobs.renew([held]) == [0]


# -- canceling and deleting --------------------------------------------------------------------------


def test_a_canceled_job_leaves_the_queue(jobs: JobStore, make_job: MakeJob, events: EventLog) -> None:
    job = make_job()
    assert jobs.cancel(job.id).status is Status.CANCELED
    assert jobs.cancel(job.id).status is Status.CANCELED
    assert jobs.claim(THINKER, Stage.THINKER, "w") is None
    assert terminal_events(events, job) == ["canceled"]


def test_canceling_between_the_stages_keeps_the_second_from_starting(
    jobs: JobStore, make_job: MakeJob
) -> None:
    job = make_job()
    jobs.start_next(claim(jobs), done=True, streamed=False)
    jobs.cancel(job.id)
    assert jobs.claim(TOKEN2WAV, Stage.TOKEN2WAV, "w") is None


def test_canceling_a_running_job_takes_its_lease(jobs: JobStore, make_job: MakeJob) -> None:
    job = make_job()
    held = claim(jobs)
    jobs.cancel(job.id)
    assert jobs.renew([held]) == [0]
    assert jobs.succeed(held, {}, {}) is False


def test_cancel_and_completion_at_the_same_moment_give_one_end(
    jobs: JobStore, make_job: MakeJob, events: EventLog
) -> None:
    for _ in range(100):
        job = make_job(Task.ASR)
        held = claim(jobs)
        thread = threading.Thread(target=jobs.succeed, args=(held, {}, {}))
        thread.start()
        try:
            jobs.cancel(job.id)
        except StagewaveError as error:
            assert error.code is ErrorCode.JOB_FINISHED
        thread.join()
        ended = jobs.get(job.id)
        assert ended.status.terminal
        assert terminal_events(events, job) == [ended.status.value]


def test_a_finished_job_cannot_be_canceled(jobs: JobStore, make_job: MakeJob) -> None:
    job = make_job(Task.ASR)
    jobs.succeed(claim(jobs), {}, {})
    with pytest.raises(StagewaveError) as caught:
        jobs.cancel(job.id)
    assert caught.value.code is ErrorCode.JOB_FINISHED
    assert jobs.get(job.id).status is Status.SUCCEEDED


def test_a_deleted_job_is_gone_and_does_not_come_back(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job(Task.ASR, text="private words")
    held = claim(jobs)
    jobs.delete(job.id)
    assert jobs.succeed(held, {"text": "private words"}, {}) is False
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


# -- what is left ------------------------------------------------------------------------------------


def test_everything_of_a_finished_job_runs_out(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job(Task.ASR, webhook=HOOK)
    jobs.succeed(claim(jobs), {}, {})
    mine = [key for key in redis_client.keys() if job.id.encode() in key]
    assert mine
    assert all(redis_client.ttl(key) > 0 for key in mine)


def test_names_of_expired_jobs_are_swept_from_every_index(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    kept, expired = make_job(batch_id="b"), make_job(batch_id="b")
    redis_client.delete(keys.job(expired.id))
    assert jobs.forget_expired("job_~") == 4  # all, status, type, batch
    assert [job.id for job in jobs.page(batch="b")[0]] == [kept.id]


def test_webhooks_are_owed_in_the_step_that_ends_the_job(
    jobs: JobStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job(Task.ASR, webhook=HOOK)
    held = claim(jobs)
    jobs.succeed(held, {}, {})
    jobs.succeed(held, {}, {})
    due = redis_client.zrange(keys.CONTROL_PREFIXES["deliveries_due"], 0, -1)
    ulid = job.id.removeprefix("job_").encode()
    assert sorted(due) == [b"msg_" + ulid + b"_started", b"msg_" + ulid + b"_succeeded"]


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
