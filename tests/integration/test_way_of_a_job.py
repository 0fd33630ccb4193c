"""The whole way of a job through real pools, with the engine that makes known samples at no cost."""

from __future__ import annotations

import io
import signal
import threading
import time

import numpy as np
import pytest
import soundfile

from stage_pipeline.errors import StagewaveError
from stage_pipeline.messages import AudioChunk
from stage_pipeline.stages import Task
from tests.integration.conftest import System, wav
from workers import keys
from workers.job import Job, JobSpec, new_job_id
from workers.pool_registry import PoolWorker
from workers.results import remove_objects
from workers.scheduler import Scheduler
from workers.states import Stage, Status

SAMPLES_A_TOKEN = 960


def samples(data: bytes) -> np.ndarray:
    return soundfile.read(io.BytesIO(data), dtype="int16")[0]


def listen(system: System, job_id: str) -> bytes:
    """What a live listener hears, to the end."""
    system.backend.jobs.mark_listening(job_id)
    heard: list[AudioChunk] = [c for c in system.backend.audio.follow(job_id) if c is not None]
    return b"".join(chunk.pcm for chunk in heard)


def leftovers(system: System, job: Job) -> list[bytes]:
    streams = (keys.tokens, keys.tokens_head, keys.audio, keys.audio_head)
    return [key(job.id).encode() for key in streams if system.backend.client.exists(key(job.id))]


def in_stage(system: System, job: Job, stage: Stage) -> bool:
    return system.backend.client.hget(keys.job(job.id), f"state:{stage}") == b"running"


@pytest.mark.parametrize("mode", ["auto", "sequential", "async_chunk"])
@pytest.mark.parametrize("tokens", [1, 27, 28, 163])
def test_tts_makes_960_samples_a_token_in_every_mode(running: System, mode: str, tokens: int) -> None:
    job = running.submit(text=f"tokens={tokens}", mode=mode)
    done = running.wait_success(job.id)
    assert len(samples(running.audio(done))) == SAMPLES_A_TOKEN * tokens
    assert done.usage["audio_tokens"] == tokens
    assert done.streamed is (mode == "async_chunk")


def test_all_modes_give_the_same_samples_and_so_does_a_listener(running: System) -> None:
    jobs = [running.submit(text="tokens=163", mode=mode) for mode in ("sequential", "async_chunk")]
    files = [samples(running.audio(running.wait_success(job.id))) for job in jobs]
    live = running.submit(text="tokens=163", live=True)
    heard = np.frombuffer(listen(running, live.id), "<i2")
    assert (files[0] == files[1]).all()
    assert (heard == files[0]).all()
    assert (samples(running.audio(running.wait_success(live.id))) == heard).all()


def test_a_listener_who_comes_late_hears_it_all(running: System) -> None:
    job = running.submit(text="tokens=200 delay_ms=5", mode="async_chunk")
    running.wait_until(lambda: running.job(job.id).first_audio_at is not None, "first audio")
    heard = listen(running, job.id)
    assert len(heard) == 2 * SAMPLES_A_TOKEN * 200


def test_asr_never_meets_token2wav(running: System) -> None:
    job = running.submit_audio(Task.ASR, wav())
    done = running.wait_success(job.id)
    assert done.attempts == {"thinker": 1}
    assert done.usage["audio_in_s"] == pytest.approx(1.0)
    assert done.result and "audio" not in done.result


def test_s2st_has_both_a_transcript_and_audio(running: System) -> None:
    done = running.wait_success(running.submit_audio(Task.S2ST, wav(48_000)).id)
    assert done.result and done.result["audio_key"] and done.result["transcript_key"]


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "audio_empty"), (wav(0), "audio_empty"), (b"<html>no</html>" * 99, "not_audio")],
    ids=["0 bytes", "0 samples", "a web page"],
)
def test_what_is_no_audio_fails_once_and_the_worker_goes_on(
    running: System, data: bytes, code: str
) -> None:
    failed = running.wait_end(running.submit_audio(Task.ASR, data).id)
    assert failed.status is Status.FAILED
    assert failed.error and failed.error["code"] == code
    assert failed.attempts == {"thinker": 1}
    running.wait_success(running.submit_audio(Task.ASR, wav()).id)


def test_an_unknown_voice_fails_typed(running: System) -> None:
    failed = running.wait_end(running.submit(voice="../../etc/passwd").id)
    assert failed.error and failed.error["code"] == "voice_unknown"


def test_a_job_whose_bell_was_lost_is_run_all_the_same(running: System) -> None:
    spec = JobSpec(Task.TTS, "noop", text="tokens=3")
    job, _ = running.backend.jobs.create(new_job_id(), spec)  # made, and nobody rang
    running.wait_success(job.id, timeout_s=5)


# -- cancel: S13 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [Stage.THINKER, Stage.TOKEN2WAV])
def test_cancel_stops_a_running_stage_within_a_second(running: System, stage: Stage) -> None:
    if stage is Stage.THINKER:
        job = running.submit(text="tokens=2000 delay_ms=10")
    else:
        job = running.submit(text="tokens=2000", voice="slow")
    running.wait_until(lambda: in_stage(running, job, stage), f"{stage} runs")
    began = time.monotonic()
    running.backend.jobs.cancel(job.id)
    name = stage.value
    running.wait_until(
        lambda: all(worker.running == 0 for worker in _workers(running, name)),
        "the slot is free",
        timeout_s=5,
    )
    assert time.monotonic() - began < 1 + 2.5  # the registry tells of free slots every two seconds
    assert running.job(job.id).status is Status.CANCELED
    if stage is Stage.THINKER:
        assert "token2wav" not in running.job(job.id).attempts
    running.wait_until(lambda: leftovers(running, job) == [], "its streams are gone")


def _workers(system: System, stage: str) -> list[PoolWorker]:
    return [worker for worker in system.backend.pools.workers() if worker.stage == stage]


def test_cancel_at_any_moment_gives_one_end_that_stays(running: System) -> None:
    jobs = []
    for turn in range(60):
        job = running.submit(text="tokens=30", mode="async_chunk" if turn % 2 else "sequential")
        jobs.append(job)
        threading.Timer(0.0015 * (turn % 40), _cancel_quietly, args=(running, job.id)).start()
    for job in jobs:
        running.wait_end(job.id)
    time.sleep(0.5)
    for job in jobs:
        ended = running.job(job.id)
        told = [e.name for e in running.backend.events.read(job.id) if e.terminal]
        assert told == [ended.status.value]
        assert ended.status in (Status.CANCELED, Status.SUCCEEDED)


def _cancel_quietly(system: System, job_id: str) -> None:
    try:
        system.backend.jobs.cancel(job_id)
    except StagewaveError as error:
        assert error.code.code == "job_finished"


def test_a_job_deleted_while_it_runs_leaves_nothing(running: System) -> None:
    job = running.submit(text="tokens=300 delay_ms=5", mode="async_chunk")
    running.wait_until(lambda: in_stage(running, job, Stage.TOKEN2WAV), "token2wav runs")
    running.backend.jobs.delete(job.id)
    running.wait_until(lambda: leftovers(running, job) == [], "its streams are gone")
    time.sleep(0.5)
    assert leftovers(running, job) == []
    assert list(running.backend.objects.list(f"results/{job.id}/")) == []


# -- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "async_chunk"])
@pytest.mark.parametrize("victim", ["thinker", "token2wav"])
def test_a_killed_worker_costs_little_and_changes_no_sample(
    running: System, victim: str, mode: str
) -> None:
    slow = {"text": "tokens=300 delay_ms=4", "voice": "slow", "mode": mode}
    expected = samples(running.audio(running.wait_success(running.submit(**slow).id)))
    job = running.submit(**slow)
    running.wait_until(lambda: in_stage(running, job, Stage(victim)), f"{victim} runs")
    time.sleep(0.3)
    running.kill(victim)
    began = time.monotonic()
    running.start(victim)
    done = running.wait_success(job.id)
    assert time.monotonic() - began < 20
    assert done.attempts[victim] == 2
    assert (samples(running.audio(done)) == expected).all()
    assert len(list(running.backend.objects.list(f"results/{job.id}/"))) == 1


def test_tokens_already_made_are_not_made_again(running: System) -> None:
    job = running.submit(text="tokens=600 delay_ms=5", mode="async_chunk")
    heard: list[bytes] = []
    listener = threading.Thread(target=lambda: heard.append(listen(running, job.id)))
    listener.start()
    chunks = running.backend.tokens.chunks
    running.wait_until(lambda: len(chunks(job.id)) >= 6, "some chunks are made")
    running.kill("thinker")
    before = len(chunks(job.id))
    running.start("thinker")
    running.wait_until(lambda: len(chunks(job.id)) > before, "the second attempt goes on")
    made = chunks(job.id)
    assert [c.attempt for c in made[:before]] == [1] * before
    tokens = [token for c in made for token in c.tokens]
    assert tokens == list(range(len(tokens)))  # a noop token is its place: none again, none left out
    done = running.wait_success(job.id)
    listener.join(timeout=10)
    assert heard[0] == samples(running.audio(done)).tobytes()
    assert len(heard[0]) == 2 * SAMPLES_A_TOKEN * 600


def test_a_listener_hears_no_seam_when_token2wav_is_killed(running: System) -> None:
    job = running.submit(text="tokens=300", voice="slow", live=True)
    heard: list[bytes] = []
    listener = threading.Thread(target=lambda: heard.append(listen(running, job.id)))
    listener.start()
    running.wait_until(lambda: running.job(job.id).first_audio_at is not None, "first audio")
    time.sleep(0.2)
    running.kill("token2wav")
    running.start("token2wav")
    done = running.wait_success(job.id)
    listener.join(timeout=10)
    assert heard[0] == samples(running.audio(done)).tobytes()


def test_a_sleeper_that_wakes_after_its_lease_changes_nothing(running: System) -> None:
    job = running.submit(text="tokens=100 delay_ms=10", mode="sequential")
    running.wait_until(lambda: in_stage(running, job, Stage.THINKER), "thinker runs")
    running.signal("thinker", signal.SIGSTOP)
    running.wait_until(lambda: not in_stage(running, job, Stage.THINKER), "the lease ran out")
    running.signal("thinker", signal.SIGCONT)
    done = running.wait_success(job.id)
    assert done.attempts["thinker"] == 2
    assert len(samples(running.audio(done))) == SAMPLES_A_TOKEN * 100
    assert [e.name for e in running.backend.events.read(job.id) if e.terminal] == ["succeeded"]


def test_a_stopping_worker_hands_its_job_back_unharmed(running: System) -> None:
    job = running.submit(text="tokens=500 delay_ms=10")
    running.wait_until(lambda: in_stage(running, job, Stage.THINKER), "thinker runs")
    began = time.monotonic()
    assert running.stop("thinker") == 0
    assert time.monotonic() - began < 6
    assert running.backend.counts.queue_depths(["thinker.noop"]) == {"thinker.noop": 1}
    running.start("thinker")
    done = running.wait_success(job.id)
    assert len(samples(running.audio(done))) == SAMPLES_A_TOKEN * 500


def test_a_stopping_worker_lets_a_short_job_finish(running: System) -> None:
    job = running.submit(text="tokens=40 delay_ms=10", mode="sequential")
    running.wait_until(lambda: in_stage(running, job, Stage.THINKER), "thinker runs")
    assert running.stop("thinker") == 0
    assert running.wait_success(job.id).attempts["thinker"] == 1


def test_of_two_schedulers_one_leads_and_the_other_takes_over(running: System) -> None:
    second = Scheduler(running.backend, ("thinker.noop",))
    assert second.tick() is False
    running.kill("scheduler")
    running.wait_until(lambda: second.tick(), "the second one leads", timeout_s=10)
    second.resign()


# -- many at a time ------------------------------------------------------------------------------


def test_many_jobs_at_a_time_keep_their_own_samples(running: System) -> None:
    sizes = {running.submit(text=f"tokens={n}", mode="async_chunk").id: n for n in range(1, 80)}
    for job_id, n in sizes.items():
        assert len(samples(running.audio(running.wait_success(job_id)))) == SAMPLES_A_TOKEN * n


# -- found by attacking it -----------------------------------------------------------------------


def test_who_follows_the_text_is_told_when_it_begins_anew(running: System) -> None:
    job = running.submit_audio(Task.S2ST, wav(), text="tokens=300 delay_ms=10")
    running.wait_until(lambda: _told(running, job, "text") == 1, "the text is told")
    running.kill("thinker")
    running.start("thinker")
    running.wait_success(job.id)
    names = [
        event.name for event in running.backend.events.read(job.id) if event.name in ("text", "restart")
    ]
    assert names == ["text", "restart", "text"]


def _told(system: System, job: Job, name: str) -> int:
    return sum(event.name == name for event in system.backend.events.read(job.id))


def test_a_job_deleted_at_any_moment_leaves_no_object(running: System) -> None:
    jobs = [running.submit_audio(Task.S2ST, wav(), text="tokens=30") for _ in range(40)]
    for turn, job in enumerate(jobs):
        time.sleep(0.002 * (turn % 7))
        running.backend.jobs.delete(job.id)
        remove_objects(running.backend.objects, job.id)
    running.wait_until(lambda: not _running_attempts(running), "all attempts have ended")
    for job in jobs:
        assert list(running.backend.objects.list(f"results/{job.id}/")) == []
        assert leftovers(running, job) == []


def _running_attempts(system: System) -> int:
    time.sleep(2.5)  # the registry tells of free slots every two seconds
    return sum(worker.running for worker in system.backend.pools.workers())


def test_streams_of_a_job_that_missed_its_deadline_are_gone(running: System) -> None:
    job = running.submit(text="tokens=900 delay_ms=10", mode="async_chunk", deadline_s=1.0)
    failed = running.wait_end(job.id)
    assert failed.error and failed.error["code"] == "deadline_exceeded"
    running.wait_until(lambda: leftovers(running, job) == [], "its streams are gone")


def test_each_attempt_is_logged_with_its_job(running: System) -> None:
    job = running.wait_success(running.submit().id)
    running.wait_until(lambda: job.id in running.logs(), "the log names the job")
