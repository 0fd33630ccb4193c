"""What one line of a batch asks for: read, checked as ``POST /v1/jobs`` does, and made into a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers.backend import Backend
from workers.batch import BatchSpec
from workers.faults import InvalidRequest
from workers.input_audio import NamedOrSent, named_audio
from workers.job import BatchLine, JobSpec, JsonObject
from workers.job_request import JobRequest, check_rules, fault_of, parse_request, spec_of
from workers.models import deploy_for
from workers.openai_body import fields_named
from workers.openai_speech_request import SPEECH_FIELDS, parse_speech, speech_job
from workers.openai_transcription_request import (
    TRANSCRIPTION_FIELDS,
    parse_transcription,
    transcription_job,
)
from workers.strict_json import parse_json
from workers.voice_lookup import check_voice

JOBS = "/v1/jobs"
SPEECH = "/v1/audio/speech"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
ENDPOINTS = (JOBS, SPEECH, TRANSCRIPTIONS, TRANSLATIONS)
MAX_CUSTOM_ID_CHARS = 256


class OpenAiLine(BaseModel):
    """A line as in OpenAI's Batch API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    custom_id: str | None = Field(default=None, min_length=1, max_length=MAX_CUSTOM_ID_CHARS)
    method: Literal["POST"]
    url: Literal["/v1/jobs", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"]
    body: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class LineJob:
    """The job to make of a line; ``audio`` is not in ``spec`` yet, since bytes must be stored first."""

    custom_id: str | None
    spec: JobSpec
    audio: NamedOrSent | None


class LineRefused(Exception):
    """No job can be made of a line; ``custom_id`` is its own, where it could be read."""

    def __init__(self, error: StagewaveError, custom_id: str | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.custom_id = custom_id


class LineRules:
    """What the lines of batches are held to on this system."""

    def __init__(self, backend: Backend, deploys: Sequence[DeployConfig]) -> None:
        self._backend = backend
        self._settings = backend.settings
        self._deploys = deploys

    def read(self, data: bytes, number: int, batch_id: str, spec: BatchSpec) -> LineJob:
        """Raises ``LineRefused``."""
        custom_id = None
        try:
            fields = parse_json(data)
            if not isinstance(fields, dict):
                raise StagewaveError(ErrorCode.INVALID_JSON, "a line must be a JSON object")
            custom_id = _custom_id(fields)
            return self._line_job(fields, custom_id, number, batch_id, spec)
        except StagewaveError as error:
            raise LineRefused(error, custom_id) from error

    def _line_job(
        self, fields: JsonObject, custom_id: str | None, number: int, batch_id: str, spec: BatchSpec
    ) -> LineJob:
        url, body = JOBS, fields
        if "url" in fields or "method" in fields or "body" in fields:
            line = _openai_line(fields)
            url, body = line.url, line.body
        else:
            body = {name: value for name, value in fields.items() if name != "custom_id"}
        if spec.endpoint not in (None, url):
            raise StagewaveError(
                ErrorCode.INVALID_REQUEST, "it is not the endpoint that the batch is for", field="url"
            )
        job, names, asked = self._as_job(url, body)
        with fields_named(names):
            wanted = parse_request(job, from_form=False)
            deploy = deploy_for(self._deploys, wanted.model, Task(wanted.type))
            check_rules(wanted, deploy, self._settings)
            check_voice(self._backend, deploy, wanted.voice)
            audio = self._audio(wanted)
        made = spec_of(wanted, deploy, None)
        if wanted.mode in (None, "auto") and not wanted.live:
            # Nobody listens: the whole utterance at once costs less.
            made = replace(made, mode="sequential")
        if url == TRANSLATIONS:
            made = replace(made, target_language="en")
        made = replace(
            made,
            batch_id=batch_id,
            priority=wanted.priority or spec.priority,
            line=BatchLine(number, custom_id, url, asked),
        )
        return LineJob(custom_id, made, audio)

    def _as_job(self, url: str, body: JsonObject) -> tuple[JsonObject, Mapping[str, str], JsonObject]:
        """The fields of a job, what a line calls them, and what the form of the answer depends on."""
        if url == JOBS:
            return body, {}, {}
        if url == SPEECH:
            speech = parse_speech(body, self._deploys)
            _check_unstreamed(bool(speech.stream or speech.stream_format))
            return _given(speech_job(speech)), SPEECH_FIELDS, {}
        heard = dict(body)
        source = heard.pop("file", None) or heard.pop("audio_url", None)
        if not isinstance(source, str):
            raise StagewaveError(
                ErrorCode.INVALID_REQUEST, "it must be the audio's URL: https, data or s3", field="file"
            )
        wanted = parse_transcription(heard, self._deploys, from_form=False)
        _check_unstreamed(wanted.stream)
        asked = wanted.model_dump(mode="json", exclude_defaults=True)
        names = {**TRANSCRIPTION_FIELDS, "audio_url": "file"}
        return _given(transcription_job(wanted)) | {"audio_url": source}, names, asked

    def _audio(self, wanted: JobRequest) -> NamedOrSent | None:
        if wanted.audio_url:
            return named_audio(wanted.audio_url, self._settings)
        if wanted.hears:
            raise StagewaveError(
                ErrorCode.INVALID_REQUEST, f"a job of type {wanted.type} needs audio", field="audio_url"
            )
        return None


def _openai_line(fields: Mapping[str, JsonValue]) -> OpenAiLine:
    try:
        return OpenAiLine.model_validate(dict(fields), strict=True)
    except ValidationError as error:
        faults = [fault_of(item["loc"], item["type"], item["msg"]) for item in error.errors()]
        raise InvalidRequest(faults) from None


def _custom_id(fields: Mapping[str, JsonValue]) -> str | None:
    custom_id = fields.get("custom_id")
    if custom_id is None or (isinstance(custom_id, str) and 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS):
        return custom_id
    raise StagewaveError(
        ErrorCode.INVALID_REQUEST,
        f"it must be a text of 1 to {MAX_CUSTOM_ID_CHARS} characters",
        field="custom_id",
    )


def _check_unstreamed(streamed: bool) -> None:
    if streamed:
        raise StagewaveError(ErrorCode.INVALID_REQUEST, "nobody listens to a batch", field="stream")


def _given(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}
