"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: what is said in a recording."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Literal

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter
from werkzeug.datastructures import FileStorage, MultiDict

from api.input_audio import sent_file
from api.job_body import read_form
from api.json_response import json_response
from api.openai_body import parse_body
from api.openai_call import JOB_HEADER, PROBLEMS, STAY, Call, start_call, tokens_used, with_job_id
from api.openai_deltas import TextDeltas
from api.openai_errors import UnsupportedValue, fields_named
from api.openai_models import check_model
from api.openai_records import OpenAiError, OpenAiTranscription
from api.openai_sse import frame, sse_response
from api.operation import Answer, Operation, describe
from api.services import Services, services
from api.transcript import stored_transcript
from stage_pipeline.audio.transcript import to_srt, to_vtt
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Segment

blueprint = Blueprint("openai_transcriptions", __name__, url_prefix="/v1/audio")
blueprint.after_request(with_job_id)

_LISTS = frozenset({"timestamp_granularities", "include"})
_OUR_FIELDS = {"instructions": "prompt"}
_SEGMENTS = TypeAdapter(tuple[Segment, ...])
_FRAMES_PER_S = 100
"""Of Whisper's spectrogram, which ``seek`` counts in."""
_MEDIA_TYPES = ("text/plain", "application/x-subrip", "text/vtt", "text/event-stream")


class TranscriptionRequest(BaseModel):
    """As OpenAI's; a translation may have the same fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="Unset: the model served here.")
    language: str | None = Field(default=None, description="Of the speech, such as `en`. Unset: found out.")
    prompt: str | None = Field(default=None, description="To the model; the embedded engine takes none.")
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json", "diarized_json"] = Field(
        default="json", description="`diarized_json` is not offered."
    )
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        default_factory=list, description="As `timestamp_granularities[]`, of `verbose_json`."
    )
    include: list[Literal["logprobs"]] = Field(default_factory=list, description="Not offered.")
    chunking_strategy: Literal["auto"] | None = Field(default=None, description="How else is not offered.")
    stream: bool = Field(default=False, description="Text as it comes, as events.")

    @property
    def words(self) -> bool:
        return "word" in self.timestamp_granularities


class TranscriptionForm(TranscriptionRequest):
    """The fields, and the audio as the part ``file``."""

    file: bytes = Field(json_schema_extra={"format": "binary"})


@blueprint.post("/transcriptions")
@describe(
    Operation(
        summary="Transcribe (OpenAI)",
        tag="openai",
        description="Waits for the transcript and answers with it; with `stream`, sends text as it comes.",
        form_model=TranscriptionForm,
        parameters=(STAY,),
        answers={
            200: Answer(
                "The transcript.", OpenAiTranscription, media_types=_MEDIA_TYPES, headers=(JOB_HEADER,)
            )
        },
        problems=PROBLEMS,
        error_model=OpenAiError,
    )
)
def transcribe() -> Response:
    return _heard(translate=False)


@blueprint.post("/translations")
@describe(
    Operation(
        summary="Translate speech into English text (OpenAI)",
        tag="openai",
        form_model=TranscriptionForm,
        parameters=(STAY,),
        answers={
            200: Answer(
                "The translation.", OpenAiTranscription, media_types=_MEDIA_TYPES, headers=(JOB_HEADER,)
            )
        },
        problems=PROBLEMS,
        error_model=OpenAiError,
    )
)
def translate() -> Response:
    return _heard(translate=True)


def _heard(*, translate: bool) -> Response:
    having = services()
    form, file = read_form(request, having.settings)
    wanted = parse_body(TranscriptionRequest, _fields(form), from_form=True)
    check_model(wanted.model, having.deploy)
    _check_offered(wanted)
    call = _start(having, wanted, file, translate)
    if wanted.stream:
        return sse_response(_events(call), call)
    with call:
        job = call.wait()
    return _answer(wanted, stored_transcript(having, job), translate)


def _start(
    having: Services, wanted: TranscriptionRequest, file: FileStorage | None, translate: bool
) -> Call:
    if file is None:
        raise StagewaveError(ErrorCode.INVALID_MULTIPART, "there is no part with the audio", field="file")
    audio = sent_file(file.stream, file.filename, having.settings)
    sampling: list[JsonValue] = []
    if wanted.temperature is not None:
        sampling.append({"temperature": wanted.temperature})
    with fields_named(_OUR_FIELDS):
        return start_call(
            having,
            {
                "type": "asr",
                "language": wanted.language,
                "instructions": wanted.prompt,
                "word_timestamps": wanted.words,
                "sampling_params_list": sampling,
            },
            audio,
            translate=translate,
        )


def _fields(form: MultiDict[str, str]) -> dict[str, JsonValue]:
    """Lists are named with brackets; what was left empty is not there."""
    fields: dict[str, JsonValue] = {}
    for written, values in form.lists():
        name = written.removesuffix("[]")
        given = [value for value in values if value != ""]
        if name in _LISTS:
            fields[name] = list(given)
        elif len(given) > 1:
            raise StagewaveError(ErrorCode.INVALID_MULTIPART, "a field stands in the form twice")
        elif given:
            fields[name] = given[0]
    return fields


def _check_offered(wanted: TranscriptionRequest) -> None:
    if wanted.response_format == "diarized_json":
        raise UnsupportedValue("response_format", "who speaks when is not found out here")
    if wanted.include:
        raise UnsupportedValue("include", "log probabilities are not offered")
    if wanted.timestamp_granularities and wanted.response_format != "verbose_json":
        raise UnsupportedValue("timestamp_granularities", "this needs the response_format verbose_json")
    if wanted.stream and wanted.response_format not in ("json", "text"):
        raise UnsupportedValue("stream", "text is streamed with the response_format json or text only")


def _events(call: Call) -> Iterator[bytes | None]:
    deltas = TextDeltas()
    for event in call.events():
        new = deltas.of(event) if event is not None else ""
        yield frame({"type": "transcript.text.delta", "delta": new}) if new else None
    job = call.succeeded()
    read, made = tokens_used(job, "prompt"), tokens_used(job, "text")
    tokens = {"type": "tokens", "input_tokens": read, "output_tokens": made, "total_tokens": read + made}
    text = (job.result or {}).get("text")
    yield frame({"type": "transcript.text.done", "text": text, "usage": tokens})


def _answer(wanted: TranscriptionRequest, transcript: dict[str, object], translated: bool) -> Response:
    segments = _SEGMENTS.validate_python(transcript["segments"])
    match wanted.response_format:
        case "text":
            return _text(f"{transcript['text']}\n", "text/plain")
        case "srt":
            return _text(to_srt(segments), "application/x-subrip")
        case "vtt":
            return _text(to_vtt(segments), "text/vtt")
    usage = {"type": "duration", "seconds": transcript["duration_s"]}
    answer: dict[str, object] = {"text": transcript["text"], "usage": usage}
    if wanted.response_format == "verbose_json":
        answer["task"] = "translate" if translated else "transcribe"
        answer["language"] = "english" if translated else transcript["language"]
        answer["duration"] = transcript["duration_s"]
        if not wanted.words or "segment" in wanted.timestamp_granularities:
            answer["segments"] = [
                _segment(number, segment, wanted.temperature or 0.0)
                for number, segment in enumerate(segments)
            ]
        if wanted.words:
            answer["words"] = [
                {"word": word.text.strip(), "start": word.start_s, "end": word.end_s}
                for segment in segments
                for word in segment.words
            ]
    return json_response(answer)


def _segment(number: int, segment: Segment, temperature: float) -> dict[str, object]:
    written = segment.text.encode()
    return {
        "id": number,
        "seek": int(segment.start_s * _FRAMES_PER_S),
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "tokens": [],
        "temperature": temperature,
        "avg_logprob": 0.0,
        "compression_ratio": round(len(written) / len(zlib.compress(written)), 4),
        "no_speech_prob": 0.0,
    }


def _text(body: str, media_type: str) -> Response:
    return Response(
        body, content_type=f"{media_type}; charset=utf-8", headers={"Cache-Control": "no-store"}
    )
