"""A Thinker that emits counted tokens at a given pace."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import THINKER_RATE_HZ, GenerateRequest, Task, ThinkerDelta, Usage

CHUNK_POLICY = FixedWindows()

_SETTING = re.compile(r"\b(tokens|delay_ms)=(\d{1,6})\b")
_TOKENS = 30


class NoopThinker:
    """Reads "tokens=50 delay_ms=20" in the text, and nothing else: so many tokens, so long before each.

    Token ``i`` has the id ``i`` modulo 6561. ASR answers with the duration of the audio.
    """

    resumes_from_tokens = True
    chunk_policy = CHUNK_POLICY

    def __init__(self) -> None:
        self._running: dict[str, threading.Event] = {}

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        stop = threading.Event()
        self._running[request.request_id] = stop
        return self._until(stop, request)

    def abort(self, request_id: str) -> None:
        stop = self._running.get(request_id)
        if stop is not None:
            stop.set()

    def warm_up(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        for stop in list(self._running.values()):
            stop.set()

    def _until(self, stop: threading.Event, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        try:
            yield from _deltas(stop, request)
        finally:
            if self._running.get(request.request_id) is stop:
                del self._running[request.request_id]


def _deltas(stop: threading.Event, request: GenerateRequest) -> Iterator[ThinkerDelta]:
    heard = ""
    if request.task is not Task.TTS:
        if request.audio is None or not len(request.audio):
            raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the audio has no samples", field="audio")
        heard = f"{len(request.audio) / THINKER_RATE_HZ:.3f} seconds"
        if stop.is_set():
            return
        yield ThinkerDelta(text=heard, source_text=heard if request.task is Task.S2ST else "")
    elif not request.text.strip():
        raise StagewaveError(ErrorCode.TEXT_EMPTY, "the text is empty", field="text")
    count, delay_s = (0, 0.0) if request.task is Task.ASR else _asked(request.text)
    for position in range(len(request.prior_tokens), count):
        # Waits on the abort itself, so that it is seen at once whatever the delay.
        if stop.wait(delay_s) if delay_s else stop.is_set():
            return
        yield ThinkerDelta(tokens=(token_at(position),), progress=(position + 1) / count)
    if not stop.is_set():
        yield ThinkerDelta(
            finish_reason="stop", progress=1.0, usage=Usage(len(request.text), len(heard), count)
        )


def token_at(position: int) -> int:
    """The id of the token at a place in the answer."""
    return position % CHUNK_POLICY.first_control_id


def _asked(text: str) -> tuple[int, float]:
    settings = {name: int(value) for name, value in _SETTING.findall(text)}
    return settings.get("tokens", _TOKENS), settings.get("delay_ms", 0) / 1000
