"""What workers do to jobs, on a real broker: one way through the states, one holder at a time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from tests.unit.workers.conftest import (
    BROKEN,
    HOOK,
    THINKER,
    TOKEN2WAV,
    MakeJob,
    claim,
    expire_leases,
    terminal_events,
)
from workers import keys
from workers.attempt import Attempt
from workers.claim_store import ClaimStore
from workers.events import EventLog
from workers.job import JobSpec, new_job_id
from workers.job_counts import JobCounts
from workers.job_store import JobStore
from workers.job_upkeep import JobUpkeep
from workers.settings import Settings
from workers.states import Stage, Status

BAD_INPUT = StagewaveError(ErrorCode.NOT_AUDIO, "no audio")


def test_who_listens_already_is_known_from_the_start(
    claims: ClaimStore, jobs: JobStore, make_job: MakeJob
) -> None:
    listened, alone = make_job(priority=1), make_job()
    jobs.mark_listening(listened.id)
    assert [(held.job.id, Attempt(held).listening) for held in (claim(claims), claim(claims))] == [
        (listened.id, True),
        (alone.id, False),
    ]


def test_high_priority_starts_next_then_age_decides(claims: ClaimStore, make_job: MakeJob) -> None:
    oldest = make_job(priority=-5)
    time.sleep(0.002)  # age counts in milliseconds
    for _ in range(200):
        make_job(priority=-5)
    plain = make_job()
    high = make_job(priority=9)
    assert [claim(claims).job.id for _ in range(3)] == [high.id, plain.id, oldest.id]


def test_one_job_is_claimed_once_however_many_workers_ask(claims: ClaimStore, make_job: MakeJob) -> None:
    for _ in range(20):
        make_job()
    claimed: list[str] = []

    def work() -> None:
        while (found := claims.claim(THINKER, Stage.THINKER, "w")) is not None:
            claimed.append(found.job.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 20


def test_an_empty_pool_gives_nothing(claims: ClaimStore) -> None:
    assert claims.claim(THINKER, Stage.THINKER, "w") is None


def test_token2wav_is_queued_once_though_asked_for_at_the_first_chunk_and_at_the_end(
    claims: ClaimStore, counts: JobCounts, make_job: MakeJob
) -> None:
    make_job()
    thinking = claim(claims)
    assert claims.start_next(thinking, done=False, streamed=True) == (True, TOKEN2WAV)
    assert claims.start_next(thinking, done=True, streamed=False) == (True, None)
    assert counts.queue_depths([TOKEN2WAV]) == {TOKEN2WAV: 1}
    assert claim(claims, TOKEN2WAV, Stage.TOKEN2WAV).job.streamed


def test_saying_done_twice_is_no_loss(claims: ClaimStore, make_job: MakeJob) -> None:
    make_job()
    thinking = claim(claims)
    assert claims.start_next(thinking, done=True, streamed=False) == (True, TOKEN2WAV)
    assert claims.start_next(thinking, done=True, streamed=False) == (True, None)


def test_asr_succeeds_without_token2wav(jobs: JobStore, claims: ClaimStore, make_job: MakeJob) -> None:
    job = make_job(Task.ASR)
    assert claims.succeed(claim(claims), {"text": "x"}, {"audio_in_s": 2.0})
    ended = jobs.get(job.id)
    assert (ended.status, ended.result) == (Status.SUCCEEDED, {"text": "x"})
    assert ended.expires_at is not None


def test_a_sleeper_that_wakes_up_changes_nothing(
    jobs: JobStore,
    claims: ClaimStore,
    upkeep: JobUpkeep,
    make_job: MakeJob,
    redis_client: redis.Redis,
    events: EventLog,
) -> None:
    job = make_job(Task.ASR)
    sleeper = claim(claims)
    expire_leases(redis_client)
    upkeep.reap()
    second = claim(claims)
    assert claims.renew([sleeper, second]) == [0, 1]
    assert claims.succeed(sleeper, {"text": "stale"}, {}) is False
    assert claims.fail(sleeper, BROKEN) is False
    assert claims.start_next(sleeper, done=True, streamed=False) == (False, None)
    assert claims.release(sleeper) is None
    assert jobs.get(job.id).status is Status.RUNNING
    assert claims.succeed(second, {"text": "fresh"}, {})
    assert jobs.get(job.id).result == {"text": "fresh"}
    assert terminal_events(events, job) == ["succeeded"]


def test_renewing_keeps_the_lease(redis_client: redis.Redis, settings: Settings) -> None:
    settings = replace(settings, lease_s=0.3)
    claims, upkeep = ClaimStore(redis_client, settings), JobUpkeep(redis_client, settings)
    JobStore(redis_client, settings).create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))
    held = claim(claims)
    for _ in range(4):
        time.sleep(0.15)
        assert claims.renew([held]) == [1]
        assert upkeep.reap() == (0, set())
    time.sleep(0.4)
    assert upkeep.reap() == (1, {THINKER})


def test_handing_back_costs_no_attempt(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob, settings: Settings
) -> None:
    job = make_job()
    for _ in range(settings.max_attempts + 2):
        assert claims.release(claim(claims)) == THINKER
    assert jobs.get(job.id).status is Status.RUNNING


def test_bad_input_fails_at_once_and_spends_no_retry(
    jobs: JobStore, claims: ClaimStore, make_job: MakeJob
) -> None:
    job = make_job(Task.ASR)
    assert claims.fail(claim(claims), BAD_INPUT) is True
    ended = jobs.get(job.id)
    assert ended.status is Status.FAILED and ended.attempts == {"thinker": 1}
    assert ended.error and ended.error["code"] == "not_audio"


def test_everything_of_a_finished_job_runs_out(
    claims: ClaimStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job(Task.ASR, webhook=HOOK)
    claims.succeed(claim(claims), {}, {})
    mine = [key for key in redis_client.keys() if job.id.encode() in key]
    assert mine
    assert all(redis_client.ttl(key) > 0 for key in mine)


def test_webhooks_are_owed_in_the_step_that_ends_the_job(
    claims: ClaimStore, make_job: MakeJob, redis_client: redis.Redis
) -> None:
    job = make_job(Task.ASR, webhook=HOOK)
    held = claim(claims)
    claims.succeed(held, {}, {})
    claims.succeed(held, {}, {})
    due = redis_client.zrange(keys.CONTROL_PREFIXES["deliveries_due"], 0, -1)
    ulid = job.id.removeprefix("job_").encode()
    assert sorted(due) == [b"msg_" + ulid + b"_started", b"msg_" + ulid + b"_succeeded"]
