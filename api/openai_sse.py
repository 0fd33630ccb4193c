"""Server-sent events as OpenAI's clients read them: data alone, and errors among the data."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator

from flask import Response

from api.events import HEARTBEAT_S
from api.openai_call import Call
from api.openai_errors import openai_error_of
from api.spoken import Pcm
from stage_pipeline.audio.encode import open_encoder
from stage_pipeline.errors import StagewaveError

DONE = b"data: [DONE]\n\n"
_BEAT = b": still here\n\n"


def frame(data: object) -> bytes:
    """One event. In ASCII, as those of jobs are: no line splitter finds a break in it."""
    return f"data: {json.dumps(data, ensure_ascii=True, separators=(',', ':'))}\n\n".encode()


def sse_response(frames: Iterator[bytes | None], call: Call) -> Response:
    """``frames`` gives None when it has nothing to say for the moment. What fails before the first event,
    or the first heartbeat, is an HTTP error; what fails later is an event."""
    told = with_heartbeats(frames)
    try:
        first = next(told)
    except BaseException:
        call.close()
        raise
    response = Response(_to_the_end(first, told), content_type="text/event-stream; charset=utf-8")
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(call.close)
    return response


def encoded(pieces: Iterator[Pcm | None], form: str) -> Iterator[bytes | None]:
    """Audio in its format, as it is made; None, or no bytes, when there is nothing to send."""
    encoder = None
    try:
        for pcm in pieces:
            if pcm is None:
                yield None
                continue
            encoder = encoder or open_encoder(form, pcm.rate_hz)
            yield encoder.write(pcm.data)
    finally:
        end = encoder.close() if encoder is not None else b""  # a codec holds memory of its own
    yield end


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def with_heartbeats(
    frames: Iterator[bytes | None], clock: Callable[[], float] = time.monotonic
) -> Iterator[bytes]:
    """A comment where nothing was said for so long that a proxy might take the connection for dead."""
    spoke = clock()
    for data in frames:
        if data is not None:
            yield data
        elif clock() - spoke < HEARTBEAT_S:
            continue
        else:
            yield _BEAT
        spoke = clock()


def _to_the_end(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield first
        yield from rest
    except StagewaveError as error:
        yield frame(openai_error_of(error))
