"""``/v1/audio/speech``: text to speech, as a file or streamed from its first packet on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from flask import Blueprint, Response, request

from api.accept import accepted_format
from api.job_body import read_object
from api.openai_call import (
    JOB_HEADER,
    KEY,
    PROBLEMS,
    STAY,
    Call,
    spoken_file,
    start_call,
    tokens_used,
    with_job_id,
)
from api.openai_records import OpenAiError
from api.openai_sse import base64_of, encoded, frame, sse_response
from api.operation import Answer, Operation, describe
from api.services import Services, services
from api.spoken import StreamCut
from stage_pipeline.audio.formats import AUDIO_FORMATS, PCM, WAV
from stage_pipeline.errors import StagewaveError
from workers.openai_body import fields_named
from workers.openai_speech_request import SPEECH_FIELDS, SpeechRequest, parse_speech, speech_job

blueprint = Blueprint("openai_speech", __name__, url_prefix="/v1/audio")
blueprint.after_request(with_job_id)

_RAW_HEADER = "X-Stainless-Raw-Response"
"""What OpenAI's packages send when the caller reads the answer while it comes: with_streaming_response."""
_MEDIA_TYPES = ("audio/wav", "audio/pcm", "audio/flac", "audio/mpeg", "audio/ogg", "text/event-stream")


@blueprint.post("/speech")
@describe(
    Operation(
        summary="Speak (OpenAI)",
        tag="openai",
        description="Waits for the speech and answers with it: as a whole file, or, with `stream`, "
        "`stream_format`, or the `with_streaming_response` of OpenAI's packages, from the first packet on.",
        request_model=SpeechRequest,
        parameters=(KEY, STAY),
        answers={200: Answer("The audio.", media_types=_MEDIA_TYPES, headers=(JOB_HEADER,))},
        problems=PROBLEMS,
        error_model=OpenAiError,
    )
)
def speak() -> Response:
    having = services()
    body = read_object(request, having.settings)
    if body.get("response_format") is None:
        # What clients accept is often left as their library has it: it chooses, but refuses nothing.
        body["response_format"] = accepted_format(request.accept_mimetypes, WAV.name)
    wanted = parse_speech(body, having.deploys)
    streamed = _is_streamed(wanted)
    with fields_named(SPEECH_FIELDS):
        call = start_call(having, {**speech_job(wanted), "live": streamed})
    if not streamed:
        return _whole(having, call)
    if wanted.stream_format == "sse":
        return sse_response(_events(call, wanted.response_format), call)
    return _streamed(call, wanted.response_format)


def _is_streamed(wanted: SpeechRequest) -> bool:
    if wanted.stream is not None:
        return wanted.stream
    return wanted.stream_format is not None or request.headers.get(_RAW_HEADER) == "stream"


def _whole(having: Services, call: Call) -> Response:
    """The seat is kept while the file is sent: a client that takes its time holds a thread."""
    try:
        stored = spoken_file(call.wait())
        found = having.backend.objects.open(stored.key)
    except BaseException:
        call.close()
        raise
    response = Response(found.iter_chunks(), content_type=_content_type(stored.format, stored.rate_hz))
    response.call_on_close(found.close)
    response.call_on_close(call.close)
    response.headers["Content-Length"] = str(stored.size_bytes)
    response.headers["Cache-Control"] = "no-store"
    return response


def _streamed(call: Call, form: str) -> Response:
    pieces = (pcm for pcm in call.pcm() if pcm is not None)
    try:
        first = next(pieces)
    except BaseException:
        call.close()
        raise
    body = _cut_short(encoded(chain([first], pieces), form))
    response = Response(body, content_type=_content_type(form, first.rate_hz))
    response.call_on_close(call.close)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _cut_short(blocks: Iterator[bytes | None]) -> Iterator[bytes]:
    """Cuts the connection when the rest does not come, so that no client takes the part for the whole."""
    try:
        for block in blocks:
            yield block or b""
    except StagewaveError:
        raise StreamCut from None


def _events(call: Call, form: str) -> Iterator[bytes | None]:
    for block in encoded(call.pcm(), form):
        yield frame({"type": "speech.audio.delta", "audio": base64_of(block)}) if block else None
    job = call.wait()
    read, made = tokens_used(job, "prompt"), tokens_used(job, "audio")
    tokens = {"input_tokens": read, "output_tokens": made, "total_tokens": read + made}
    yield frame({"type": "speech.audio.done", "usage": tokens})


def _content_type(form: str, rate_hz: int) -> str:
    content_type = AUDIO_FORMATS[form].content_type
    return f"{content_type};rate={rate_hz}" if form == PCM.name else content_type
