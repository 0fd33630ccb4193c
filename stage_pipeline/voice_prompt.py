"""A voice's prompt as clients send it: decoded, checked, and brought to the one form that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from stage_pipeline.audio.decode import decode_audio
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.wav_header import wav_header
from stage_pipeline.errors import StagewaveError
from stage_pipeline.messages import wave_to_pcm16
from stage_pipeline.voice_check import LONGEST_S, LOWEST_RATE_HZ, check_wave, rate_too_low

PROMPT_RATE_HZ = 24_000
"""Of a prompt that is kept: speech models take their mel from it at this rate, and hear at 16 kHz."""
RECOMMENDED_S = (3.0, 10.0)
_LARGEST_BYTES = 32 * 2**20
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class Prompt:
    """A recording that has met the rules. ``wav``: mono, 16 bits, ``PROMPT_RATE_HZ``."""

    wav: bytes
    duration_s: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may make the voice worse than it could be."""
        least, most = RECOMMENDED_S
        if least <= self.duration_s <= most:
            return ()
        return (f"it lasts {self.duration_s:.1f} s; {least:g} to {most:g} s are recommended",)


def read_prompt(file: BinaryIO, field: str, longest_s: float = LONGEST_S) -> Prompt:
    """Decode and check what a client sent, of any usual format. Raises ``StagewaveError`` naming ``field``:
    as ``decode_audio``, and ``audio_too_short``, ``audio_too_long``, ``audio_rate_too_low``,
    ``audio_too_quiet``, ``audio_silent``, ``audio_clipped``."""
    limits = DecodeLimits(size_bytes=_LARGEST_BYTES, duration_s=longest_s + _ROUNDING_S)
    try:
        heard = decode_audio(file, rate_hz=PROMPT_RATE_HZ, limits=limits)
        if heard.source_rate_hz < LOWEST_RATE_HZ:
            raise rate_too_low(heard.source_rate_hz)
        check_wave(heard.wave, PROMPT_RATE_HZ)
    except StagewaveError as error:
        error.field = field
        raise
    pcm = wave_to_pcm16(heard.wave)
    return Prompt(wav_header(PROMPT_RATE_HZ, len(pcm)) + pcm, round(heard.duration_s, 3))
