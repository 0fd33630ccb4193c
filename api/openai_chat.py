"""``/v1/chat/completions``: audio in, text in, or both; text out, audio out, or both."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from flask import Blueprint, Response, request

from api.job_body import read_object
from api.json_response import json_response
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
from api.openai_chat_request import IGNORED, ChatRequest, job_fields, turn_of
from api.openai_deltas import TextDeltas
from api.openai_records import ChatCompletion, OpenAiError
from api.openai_sse import DONE, base64_of, encoded, frame, sse_response
from api.operation import Answer, Operation, describe
from api.services import Services, services
from stage_pipeline.audio.formats import AUDIO_FORMATS
from stage_pipeline.stages import Task
from workers.events import START
from workers.input_audio import named_audio
from workers.job import Job
from workers.object_store import StoredObject
from workers.openai_body import UnsupportedValue, fields_named, model_of, parse_body

blueprint = Blueprint("openai_chat", __name__, url_prefix="/v1/chat")
blueprint.after_request(with_job_id)

_OUR_FIELDS = {
    "text": "messages",
    "audio_url": "messages",
    "instructions": "messages",
    "type": "messages",
    "voice": "audio",
    "response_format": "audio",
}
_NO_DATA = '"data":""'
"""Where the audio goes in the JSON. No text can be taken for it: inside a string its quotes are escaped."""

JsonObject = dict[str, object]


@blueprint.post("/completions")
@describe(
    Operation(
        summary="Hear or speak in a chat (OpenAI)",
        tag="openai",
        description="Audio in the last user message is transcribed, or with `modalities` or `<tts_start>` "
        "spoken again (translated, with `target_language`); text there is spoken. Text comes as "
        "`message.content`, audio as base64 in `message.audio.data`; with `stream` both as they are made.",
        request_model=ChatRequest,
        parameters=(KEY, STAY),
        answers={
            200: Answer(
                "The answer.", ChatCompletion, media_types=("text/event-stream",), headers=(JOB_HEADER,)
            )
        },
        problems=PROBLEMS,
        error_model=OpenAiError,
    )
)
def complete() -> Response:
    having = services()
    wanted = parse_body(ChatRequest, read_object(request, having.settings), ignored=IGNORED)
    wanted = wanted.model_copy(update={"model": model_of(wanted.model, having.deploys)})
    if wanted.form == "aac":
        raise UnsupportedValue("audio", f"aac is not offered: take {', '.join(AUDIO_FORMATS)}")
    turn = turn_of(wanted)
    with fields_named(_OUR_FIELDS):
        audio = named_audio(turn.audio_url, having.settings) if turn.audio_url else None
        call = start_call(having, job_fields(wanted, turn), audio)
    if wanted.stream:
        return sse_response(_chunks(wanted, turn.task, call), call)
    try:
        return _whole(having, call)
    except BaseException:
        call.close()
        raise


def _whole(having: Services, call: Call) -> Response:
    job = call.wait()
    speaks = job.spec.type is not Task.ASR
    text = _text_of(job)
    audio = {"id": _audio_id(job), "data": "", "expires_at": int(job.expires_at or 0), "transcript": text}
    answer = {
        **_head(job, "chat.completion"),
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": text,
                    "refusal": None,
                    "audio": audio if speaks else None,
                },
                "logprobs": None,
                "finish_reason": _finish_reason(job),
            }
        ],
        "usage": _usage(job),
    }
    response = json_response(answer)
    response.call_on_close(call.close)
    if not speaks:
        return response
    # An hour of wave is 230 MB of base64: it goes from the object store to the client in blocks.
    before, after = response.get_data().split(_NO_DATA.encode())
    found = having.backend.objects.open(spoken_file(job).key)
    before, after = before + b'"data":"', b'"' + after
    response.response = _with_audio(before, found, after)
    response.call_on_close(found.close)
    response.headers["Content-Length"] = str(len(before) + (found.size + 2) // 3 * 4 + len(after))
    return response


def _with_audio(before: bytes, found: StoredObject, after: bytes) -> Iterator[bytes]:
    yield before
    rest = b""
    for block in found.iter_chunks():
        block = rest + block
        whole = len(block) - len(block) % 3  # base64 writes three bytes at a time
        rest = block[whole:]
        yield base64.b64encode(block[:whole])
    yield base64.b64encode(rest) + after


def _chunks(wanted: ChatRequest, task: Task, call: Call) -> Iterator[bytes | None]:
    """Nothing is said before there is something to say: until then a failure can be an HTTP error."""
    deltas = _asr_deltas(call) if task is Task.ASR else _spoken_deltas(wanted, task, call)
    begun = False
    for delta in deltas:
        if delta is not None and not begun:
            yield _chunk(call.job, {"role": "assistant", "content": ""})
            begun = True
        yield None if delta is None else _chunk(call.job, delta)
    job = call.succeeded()
    if not begun:
        yield _chunk(job, {"role": "assistant", "content": ""})
    yield _chunk(job, {}, _finish_reason(job))
    if wanted.stream_options.include_usage:
        yield frame({**_head(job, "chat.completion.chunk"), "choices": [], "usage": _usage(job)})
    yield DONE


def _asr_deltas(call: Call) -> Iterator[JsonObject | None]:
    text = TextDeltas()
    for event in call.events():
        new = text.of(event) if event is not None else ""
        yield {"content": new} if new else None


def _spoken_deltas(wanted: ChatRequest, task: Task, call: Call) -> Iterator[JsonObject | None]:
    """Text when the audio that says it comes, and the audio."""
    text = TextDeltas()
    after = START
    told = task is not Task.TTS
    for block in encoded(call.pcm(), wanted.form):
        if block and not told:
            yield {"content": call.job.spec.text}  # known before, but no news to anybody
            told = True
        for event in call.new_events(after):
            after = event.id
            if new := text.of(event):
                yield {"content": new}
        yield {"audio": {"id": _audio_id(call.job), "data": base64_of(block)}} if block else None
    for again in call.events():  # what was told before is not told twice
        new = text.of(again) if again is not None else ""
        yield {"content": new} if new else None
    yield {"audio": {"id": _audio_id(call.job), "expires_at": int(call.succeeded().expires_at or 0)}}


def _chunk(job: Job, delta: JsonObject, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return frame({**_head(job, "chat.completion.chunk"), "choices": [choice]})


def _head(job: Job, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-{job.id}",
        "object": kind,
        "created": int(job.created_at),
        "model": job.spec.model,
    }


def _audio_id(job: Job) -> str:
    return f"audio_{job.id}"


def _text_of(job: Job) -> str:
    if job.spec.type is Task.TTS:
        return job.spec.text
    return str((job.result or {}).get("text") or "")


def _finish_reason(job: Job) -> str:
    return "length" if (job.result or {}).get("finish_reason") == "length" else "stop"


def _usage(job: Job) -> JsonObject:
    read, text, audio = (tokens_used(job, kind) for kind in ("prompt", "text", "audio"))
    return {
        "prompt_tokens": read,
        "completion_tokens": text + audio,
        "total_tokens": read + text + audio,
        "completion_tokens_details": {"audio_tokens": audio},
    }
