"""What stages hand each other: frozen messages with their one encoding.

Layout, little-endian: a version byte, a flags byte, then the fields in order. A reader refuses a version
it does not know, so that a rolling upgrade fails loudly and never misreads.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from stage_pipeline.stages import Segment

_TOKEN_VERSION = 2
_AUDIO_VERSION = 1
_FINAL = 0x01
_PIECE_END = 0x02
_TOKEN_HEAD = struct.Struct("<BBHIIIi")  # version, flags, attempt, seq, token count, id count, at ms
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
class PieceEnd:
    """The end of a piece of a long job that is not its last: the utterance ends, and another follows after
    the pause.

    ``result`` and ``segments`` are what this piece came to, for an attempt that goes on after it.
    """

    pause_after_ms: int
    result: ThinkerResult
    segments: tuple[Segment, ...] = ()


_PIECE_END_JSON = TypeAdapter(PieceEnd)
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Audio tokens on their way from the Thinker to Token2Wav.

    ``output_ids`` are all ids that the model made for them, from an engine that needs them to continue;
    they and the tokens end at the same place. ``at_ms`` is where in the whole audio the chunk's piece
    belongs, if it is to keep its time: there it begins, or as soon after as the piece before has ended.
    The last chunk of a piece has ``piece_end``; the final one has the job's ``result`` instead.
    """

    seq: int
    attempt: int
    tokens: tuple[int, ...]
    output_ids: tuple[int, ...] = ()
    at_ms: int | None = None
    piece_end: PieceEnd | None = None
    result: ThinkerResult | None = None

    @property
    def final(self) -> bool:
        return self.result is not None

    def to_bytes(self) -> bytes:
        flags, tail = 0, b""
        if self.result is not None:
            flags, tail = _FINAL, self.result.to_json().encode()
        elif self.piece_end is not None:
            flags, tail = _PIECE_END, _PIECE_END_JSON.dump_json(self.piece_end)
        head = _TOKEN_HEAD.pack(
            _TOKEN_VERSION,
            flags,
            self.attempt,
            self.seq,
            len(self.tokens),
            len(self.output_ids),
            _NOWHERE if self.at_ms is None else self.at_ms,
        )
        return head + np.asarray((*self.tokens, *self.output_ids), dtype="<i4").tobytes() + tail

    @classmethod
    def from_bytes(cls, data: bytes) -> TokenChunk:
        if len(data) < _TOKEN_HEAD.size or data[0] != _TOKEN_VERSION:
            raise MessageError(f"not a token chunk of version {_TOKEN_VERSION}")
        _, flags, attempt, seq, tokens, ids, at_ms = _TOKEN_HEAD.unpack_from(data)
        end = _TOKEN_HEAD.size + 4 * (tokens + ids)
        if len(data) < end:
            raise MessageError("a token chunk is cut short")
        numbers = np.frombuffer(data, dtype="<i4", count=tokens + ids, offset=_TOKEN_HEAD.size).tolist()
        return cls(
            seq,
            attempt,
            tuple(numbers[:tokens]),
            tuple(numbers[tokens:]),
            None if at_ms == _NOWHERE else at_ms,
            _PIECE_END_JSON.validate_json(data[end:]) if flags & _PIECE_END else None,
            ThinkerResult.from_json(data[end:]) if flags & _FINAL else None,
        )


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
            _AUDIO_HEAD.pack(_AUDIO_VERSION, flags, self.attempt, self.seq, self.first_sample, self.rate_hz)
            + self.pcm
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> AudioChunk:
        if len(data) < _AUDIO_HEAD.size or data[0] != _AUDIO_VERSION:
            raise MessageError(f"not an audio chunk of version {_AUDIO_VERSION}")
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
