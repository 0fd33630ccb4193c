"""A Thinker that emits counted tokens at a given pace."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.engines.aborts import Aborts
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import THINKER_RATE_HZ, GenerateRequest, Task, ThinkerDelta, Usage

CHUNK_POLICY = FixedWindows()

_SETTING = re.compile(r"\b(tokens|delay_ms|hang_ms)=(\d{1,6})\b")
_TOKENS = 30


class NoopThinker:
    """Reads "tokens=50 delay_ms=20" in the text, and nothing else: so many tokens, so long before each.

    Token ``i`` has the id ``i`` modulo 6561. ASR answers with the duration of the audio. With
    "hang_ms=9000" the whole engine, with all that runs in it, stands still for so long when half of the
    tokens are made, and takes no abort meanwhile: as one does whose device hangs.
    """

    resumes_from_tokens = True
    chunk_policy = CHUNK_POLICY
    longest_audio_s = None

    def __init__(self, longest_text_chars: int | None = None) -> None:
        self.longest_text_chars = longest_text_chars
        self._aborts = Aborts()
        self._device = threading.Lock()

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        return self._until(self._aborts.begin(request.request_id), request)

    def abort(self, request_id: str) -> None:
        self._aborts.abort(request_id)

    def warm_up(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        self._aborts.abort_all()

    def _hang(self, seconds: float) -> None:
        with self._device:
            time.sleep(seconds)

    def _until(self, stop: threading.Event, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        try:
            for delta in _deltas(stop, request, self._hang):
                with self._device:
                    pass
                yield delta
        finally:
            self._aborts.end(request.request_id, stop)


def _deltas(
    stop: threading.Event, request: GenerateRequest, hang: Callable[[float], None]
) -> Iterator[ThinkerDelta]:
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
    count, delay_s, hang_s = (0, 0.0, 0.0) if request.task is Task.ASR else _asked(request.text)
    for position in range(len(request.prior_tokens), count):
        # Waits on the abort itself, so that it is seen at once whatever the delay.
        if stop.wait(delay_s) if delay_s else stop.is_set():
            return
        if hang_s and position == count // 2:
            hang(hang_s)
        yield ThinkerDelta(tokens=(token_at(position),), progress=(position + 1) / count)
    if not stop.is_set():
        yield ThinkerDelta(
            finish_reason="stop", progress=1.0, usage=Usage(len(request.text), len(heard), count)
        )


def token_at(position: int) -> int:
    """The id of the token at a place in the answer."""
    return position % CHUNK_POLICY.first_control_id


def _asked(text: str) -> tuple[int, float, float]:
    """Tokens, seconds before each, and seconds to hang."""
    settings = {name: int(value) for name, value in _SETTING.findall(text)}
    delay_ms, hang_ms = settings.get("delay_ms", 0), settings.get("hang_ms", 0)
    return settings.get("tokens", _TOKENS), delay_ms / 1000, hang_ms / 1000
