"""The job record: what is stored comes back, and what is public holds no secret."""

from __future__ import annotations

import json

import pytest

from stage_pipeline.stages import Task
from workers.job import AudioSource, Job, JobSpec, WebhookTarget, is_job_id, new_job_id
from workers.states import Stage, Status


def test_a_spec_survives_its_json() -> None:
    spec = JobSpec(
        type=Task.S2ST,
        model="m",
        audio=AudioSource("url", url="https://example.org/a.wav"),
        metadata={"名": ["x", 1, None, {"y": 1.5}]},
        webhook=WebhookTarget("https://example.org/hook", ("job.failed",), "whsec_AAAA"),
        sampling_params_list=({"temperature": 0.5},),
    )
    assert JobSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("task", "audio", "stages"),
    [
        (Task.ASR, AudioSource("upload"), (Stage.THINKER,)),
        (Task.ASR, AudioSource("url", url="http://x"), (Stage.FETCH, Stage.THINKER)),
        (Task.TTS, None, (Stage.THINKER, Stage.TOKEN2WAV)),
        (Task.S2ST, AudioSource("url", url="http://x"), (Stage.FETCH, Stage.THINKER, Stage.TOKEN2WAV)),
    ],
)
def test_asr_never_has_token2wav(task: Task, audio: AudioSource | None, stages: tuple[Stage, ...]) -> None:
    spec = JobSpec(type=task, model="m", audio=audio)
    assert spec.stages == stages
    assert [spec.next_stage(stage) for stage in stages] == [*stages[1:], None]


def test_the_public_record_shows_neither_secrets_nor_storage_keys() -> None:
    job = Job(
        id=new_job_id(),
        spec=JobSpec(
            type=Task.ASR,
            model="m",
            audio=AudioSource("url", url="https://u:p@example.org/secret-path", key="inputs/x"),
            webhook=WebhookTarget("https://example.org/hook", secret="whsec_hidden"),
        ),
        status=Status.SUCCEEDED,
        stage=Stage.THINKER,
        attempts={"thinker": 1},
        created_at=1.0,
        result={"text": "x", "transcript_key": "results/secret-key", "audio_key": "results/secret-key"},
    )
    shown = json.dumps(job.public())
    for hidden in ("whsec_hidden", "secret-path", "secret-key", "inputs/"):
        assert hidden not in shown


def test_job_ids_sort_by_creation_and_are_recognised() -> None:
    job_id = new_job_id()
    assert is_job_id(job_id)
    for other in ("", "job_", job_id.lower(), job_id + "x", "job_" + "!" * 26, "../" + job_id):
        assert not is_job_id(other)
