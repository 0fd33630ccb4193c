"""Deploys that are not whole, or not yet: what runs does its part, and what waits keeps its order."""

from __future__ import annotations

from stage_pipeline.stages import Task
from tests.integration.conftest import System, wav


def test_asr_runs_where_there_is_no_token2wav_pool(system: System) -> None:
    system.start("thinker", "scheduler")
    job = system.submit_audio(Task.ASR, wav())
    system.wait_success(job.id)


def test_a_high_priority_job_overtakes_those_that_wait(system: System) -> None:
    low = [system.submit(text="tokens=1", priority=-5) for _ in range(200)]
    high = system.submit(text="tokens=1", priority=9)
    system.start("thinker", "token2wav", "scheduler")
    done = system.wait_success(high.id)
    waited = [system.wait_success(job.id, 60) for job in low]
    assert done.started_at is not None
    assert sum((job.started_at or 0) < done.started_at for job in waited) == 0


def test_audio_that_would_never_end_is_cut_at_the_limit(system: System) -> None:
    (config,) = system.settings.config
    text = config.read_text()
    try:
        config.write_text(text + "limits: {audio_out_s: 1.0}\n")
        system.start("thinker", "token2wav", "scheduler")
        done = system.wait_success(system.submit(text="tokens=5000", mode="async_chunk").id)
        assert done.result and done.result["finish_reason"] == "length"
        assert done.usage["audio_out_s"] == 1.0
    finally:
        config.write_text(text)
