"""The body of OpenAI's ``/v1/audio/speech``, and the job that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from stage_pipeline.audio.formats import AUDIO_FORMATS
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import StagewaveError
from stage_pipeline.stages import Task
from workers.job import JsonObject
from workers.job_request import check_speed
from workers.models import deploy_for
from workers.openai_body import UnsupportedValue, VoiceId, model_of, parse_body, voice_name
from workers.voice import DEFAULT_VOICE

SPEECH_FIELDS = {"text": "input", "type": "model"}
"""What fields of a job are called here."""


class SpeechRequest(BaseModel):
    """As OpenAI's, with the `stream` of vLLM-Omni."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="Unset: the model served here.")
    input: str = Field(description="What to say.")
    voice: str | VoiceId = DEFAULT_VOICE
    instructions: str | None = None
    response_format: Literal["wav", "pcm", "flac", "mp3", "opus", "aac"] = Field(
        default="wav", description="`aac` is not offered."
    )
    speed: float = Field(
        default=1.0, ge=0.25, le=4.0, description="Other than 1.0 where the model can change it."
    )
    sample_rate_hz: int | None = Field(default=None, description="As of a job. Unset: the model's own.")
    loudness: float | None = Field(default=None, description="As of a job: in LUFS.")
    stream: bool | None = Field(default=None, description="Send audio as it is made; false: a whole file.")
    stream_format: Literal["audio", "sse"] | None = Field(
        default=None, description="Streamed, as audio or as events with base64 of it."
    )


def parse_speech(fields: Mapping[str, JsonValue], deploys: Sequence[DeployConfig]) -> SpeechRequest:
    """Raises ``StagewaveError`` naming the field that is wrong or asks for what is not done here."""
    wanted = parse_body(SpeechRequest, fields)
    wanted = wanted.model_copy(update={"model": model_of(wanted.model, deploys)})
    if wanted.response_format == "aac":
        raise UnsupportedValue("response_format", f"aac is not offered: take {', '.join(AUDIO_FORMATS)}")
    try:
        check_speed(wanted.speed, deploy_for(deploys, wanted.model, Task.TTS))
    except StagewaveError as error:
        raise UnsupportedValue("speed", error.message) from None
    return wanted


def speech_job(wanted: SpeechRequest) -> JsonObject:
    """Fields of a ``JobRequest``; None is unset."""
    return {
        "type": "tts",
        "model": wanted.model,
        "text": wanted.input,
        "voice": voice_name(wanted.voice),
        "instructions": wanted.instructions,
        "speed": wanted.speed,
        "response_format": wanted.response_format,
        "sample_rate_hz": wanted.sample_rate_hz,
        "loudness": wanted.loudness,
    }
