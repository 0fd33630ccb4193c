"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: what is said in a recording."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Response, request
from pydantic import Field, JsonValue
from werkzeug.datastructures import FileStorage, MultiDict

from api.job_body import read_form
from api.json_response import json_response
from api.openai_call import JOB_HEADER, KEY, PROBLEMS, STAY, Call, start_call, tokens_used, with_job_id
from api.openai_deltas import TextDeltas
from api.openai_records import OpenAiError, OpenAiTranscription
from api.openai_sse import frame, sse_response
from api.operation import Answer, Operation, describe
from api.services import Services, services
from api.transcript import stored_transcript
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.input_audio import sent_file
from workers.job import JsonObject
from workers.openai_body import fields_named
from workers.openai_transcription_request import (
    TRANSCRIPTION_FIELDS,
    TranscriptionRequest,
    parse_transcription,
    transcription_body,
    transcription_job,
)

blueprint = Blueprint("openai_transcriptions", __name__, url_prefix="/v1/audio")
blueprint.after_request(with_job_id)

_LISTS = frozenset({"timestamp_granularities", "include"})
_TEXT_TYPES = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}
_MEDIA_TYPES = (*_TEXT_TYPES.values(), "text/event-stream")


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
        parameters=(KEY, STAY),
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
        parameters=(KEY, STAY),
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
    wanted = parse_transcription(_fields(form), having.deploys, from_form=True)
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
    with fields_named(TRANSCRIPTION_FIELDS):
        return start_call(having, transcription_job(wanted), audio, translate=translate)


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


def _answer(wanted: TranscriptionRequest, transcript: JsonObject, translated: bool) -> Response:
    body = transcription_body(wanted, transcript, translated)
    return (
        _text(body, _TEXT_TYPES[wanted.response_format]) if isinstance(body, str) else json_response(body)
    )


def _text(body: str, media_type: str) -> Response:
    return Response(
        body, content_type=f"{media_type}; charset=utf-8", headers={"Cache-Control": "no-store"}
    )
