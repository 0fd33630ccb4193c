"""What stages hand each other: frozen messages with their one encoding.

Layout, little-endian: a version byte, a flags byte (bit 0: final), then the fields in order. A reader
refuses a version it does not know, so that a rolling upgrade fails loudly and never misreads.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

VERSION = 1
_FINAL = 0x01
_TOKEN_HEAD = struct.Struct("<BBHII")  # version, flags, attempt, seq, token count
_AUDIO_HEAD = struct.Struct("<BBHIQI")  # version, flags, attempt, seq, first sample, rate


class MessageError(ValueError):
    """Bytes that are no message of this version."""


@dataclass(frozen=True, slots=True)
class ThinkerResult:
    """What the Thinker knows at its end; it travels with the final token chunk, so that audio and text
    of a job always come from the same attempt. ``transcript_key`` names the transcript's object."""

    text: str = ""
    source_text: str = ""
    language: str | None = None
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    audio_in_s: float = 0.0
    transcript_key: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> ThinkerResult:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Audio tokens on their way from the Thinker to Token2Wav; only the final one has a ``result``."""

    seq: int
    attempt: int
    tokens: tuple[int, ...]
    result: ThinkerResult | None = None

    @property
    def final(self) -> bool:
        return self.result is not None

    def to_bytes(self) -> bytes:
        head = _TOKEN_HEAD.pack(
            VERSION, _FINAL if self.final else 0, self.attempt, self.seq, len(self.tokens)
        )
        body = np.asarray(self.tokens, dtype="<i4").tobytes()
        tail = self.result.to_json().encode() if self.result is not None else b""
        return head + body + tail

    @classmethod
    def from_bytes(cls, data: bytes) -> TokenChunk:
        if len(data) < _TOKEN_HEAD.size or data[0] != VERSION:
            raise MessageError("not a token chunk of version 1")
        _, flags, attempt, seq, count = _TOKEN_HEAD.unpack_from(data)
        end = _TOKEN_HEAD.size + 4 * count
        if len(data) < end:
            raise MessageError("a token chunk is cut short")
        tokens = np.frombuffer(data, dtype="<i4", count=count, offset=_TOKEN_HEAD.size)
        result = ThinkerResult.from_json(data[end:]) if flags & _FINAL else None
        return cls(seq, attempt, tuple(tokens.tolist()), result)


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Audio on its way from Token2Wav to listeners: int16 little-endian mono PCM.

    ``first_sample`` counts from the start of the utterance, so that a new attempt and a listener that
    comes late both know what is already there. A final chunk may be empty.
    """

    seq: int
    attempt: int
    first_sample: int
    rate_hz: int
    pcm: bytes
    final: bool = False

    @property
    def samples(self) -> int:
        return len(self.pcm) // 2

    @property
    def end_sample(self) -> int:
        return self.first_sample + self.samples

    def to_bytes(self) -> bytes:
        flags = _FINAL if self.final else 0
        return (
            _AUDIO_HEAD.pack(VERSION, flags, self.attempt, self.seq, self.first_sample, self.rate_hz)
            + self.pcm
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> AudioChunk:
        if len(data) < _AUDIO_HEAD.size or data[0] != VERSION:
            raise MessageError("not an audio chunk of version 1")
        _, flags, attempt, seq, first, rate = _AUDIO_HEAD.unpack_from(data)
        pcm = bytes(data[_AUDIO_HEAD.size :])
        if len(pcm) % 2:
            raise MessageError("an audio chunk is cut inside a sample")
        return cls(seq, attempt, first, rate, pcm, bool(flags & _FINAL))


def wave_to_pcm16(wave: npt.NDArray[np.float32]) -> bytes:
    """float32 ``[samples]`` in [-1, 1] to int16 little-endian bytes; louder samples are clipped.

    The scale is the one that decoders divide by, so that PCM read back gives the same bytes again."""
    pcm: npt.NDArray[np.int16] = np.clip(np.rint(wave * np.float32(32768.0)), -32768, 32767).astype("<i2")
    return pcm.tobytes()
