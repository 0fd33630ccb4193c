"""A Token2Wav whose samples tell which token they came from, and where it stood."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator

import numpy as np

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.noop.thinker import CHUNK_POLICY
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave, own_speed_only

SAMPLES_PER_TOKEN = 960
MADE_LOUDNESS = 0.5


class NoopToken2Wav:
    """960 samples of a quiet tone a token, at 24 kHz, whatever the seed.

    A voice is how long a token takes: ``voices: {default: "0", slow: "4"}``, in milliseconds. Raises
    ``DeployError`` for one that is no number. A voice made at run time is half as loud.
    """

    sample_rate = 24_000
    chunk_policy = CHUNK_POLICY
    voice_tag = "noop"

    def __init__(self, voices: dict[str, str]) -> None:
        for name, ms in voices.items():
            if not ms.isdecimal():
                raise DeployError(f"voices.{name}: a voice of the noop engine is a number of milliseconds")
        self._delays_s = {name: int(ms) / 1000 for name, ms in (voices or {"default": "0"}).items()}

    def open(
        self,
        voice: str,
        seed: int,
        *,
        speed: float = 1.0,
        features: Callable[[], bytes] | None = None,
        background: bool = False,
    ) -> NoopStream:
        if speed != 1.0:
            raise own_speed_only()
        if features is not None:
            if len(features()) != hashlib.sha256().digest_size:
                raise StagewaveError(ErrorCode.ENGINE_FAILED, "these are no features of a voice")
            return NoopStream(0.0, MADE_LOUDNESS)
        if voice not in self._delays_s:
            raise StagewaveError(ErrorCode.VOICE_UNKNOWN, "there is no such voice", field="voice")
        return NoopStream(self._delays_s[voice])

    def prepare_voice(self, prompt: bytes) -> bytes:
        return hashlib.sha256(prompt).digest()

    def voices(self) -> tuple[str, ...]:
        return tuple(self._delays_s)

    def warm_up(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""


class NoopStream:
    """One utterance. Lookahead is held back until it comes again as the head of the next window."""

    def __init__(self, delay_s: float, loudness: float = 1.0) -> None:
        self._delay_s = delay_s
        self._loudness = np.float32(loudness)
        self._position = 0

    def feed(self, tokens: tuple[int, ...], final: bool) -> Iterator[Float32Wave]:
        voiced = tokens if final else tokens[: max(len(tokens) - CHUNK_POLICY.lookahead, 0)]
        for token in voiced:
            if self._delay_s:
                time.sleep(self._delay_s)
            wave = tone(token, self._position) * self._loudness
            self._position += 1
            yield wave

    def close(self) -> None:
        """Nothing to free."""


def tone(token: int, position: int) -> Float32Wave:
    """float32 ``[960]``: a tone whose number of periods is the token's, and its loudness the position's.

    Both survive 16-bit samples: a lost, doubled or moved token changes what is heard from there on.
    """
    periods = 5 + token % 97
    loudness = 0.05 + 0.4 * (position % 101) / 100
    phase = np.arange(SAMPLES_PER_TOKEN, dtype=np.float64) * (2 * np.pi * periods / SAMPLES_PER_TOKEN)
    return (loudness * np.sin(phase)).astype(np.float32)
