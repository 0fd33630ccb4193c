"""The encoding between stages: what goes in comes out, and what is foreign is refused."""

from __future__ import annotations

import numpy as np
import pytest

from stage_pipeline.messages import (
    AudioChunk,
    MessageError,
    PieceEnd,
    ThinkerResult,
    TokenChunk,
    wave_to_pcm16,
)
from stage_pipeline.stages import Segment, Word


def test_a_token_chunk_survives_its_encoding() -> None:
    chunk = TokenChunk(seq=7, attempt=3, tokens=(0, 6560, -5, 2**31 - 1))
    assert TokenChunk.from_bytes(chunk.to_bytes()) == chunk
    assert not chunk.final


def test_the_final_chunk_carries_the_thinkers_result() -> None:
    result = ThinkerResult(text="Grüße, 世界", language="de", finish_reason="length", audio_in_s=1.25)
    chunk = TokenChunk(seq=0, attempt=1, tokens=(), result=result)
    assert TokenChunk.from_bytes(chunk.to_bytes()) == chunk
    assert chunk.final


def test_a_chunk_carries_the_ids_that_spell_its_tokens_and_the_end_of_its_piece() -> None:
    segments = (Segment("Grüße.", 0.0, 1.5, (Word("Grüße.", 0.0, 1.5, 0.9),)),)
    end = PieceEnd(350, ThinkerResult(text="Grüße."), segments)
    chunk = TokenChunk(1, 2, (5, 6), output_ids=(9, 151_701, 151_702), at_ms=0, piece_end=end)
    assert TokenChunk.from_bytes(chunk.to_bytes()) == chunk
    assert not chunk.final


def test_tokens_are_int32_little_endian() -> None:
    assert TokenChunk(0, 1, (258,)).to_bytes().endswith(b"\x02\x01\x00\x00")


def test_an_audio_chunk_survives_its_encoding() -> None:
    chunk = AudioChunk(seq=1, attempt=2, first_sample=2**33, rate_hz=24_000, pcm=b"\x01\x02", final=True)
    assert AudioChunk.from_bytes(chunk.to_bytes()) == chunk
    assert chunk.end_sample == 2**33 + 1


@pytest.mark.parametrize(
    "data", [b"", b"\x01" + bytes(40), b"\x02\x00", TokenChunk(0, 1, (1, 2)).to_bytes()[:-1]]
)
def test_foreign_or_short_token_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        TokenChunk.from_bytes(data)


@pytest.mark.parametrize(
    "data", [b"", b"\x09" + bytes(40), AudioChunk(0, 1, 0, 1, b"\0\0").to_bytes()[:-1]]
)
def test_foreign_or_short_audio_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        AudioChunk.from_bytes(data)


def test_loud_samples_are_clipped_and_not_wrapped() -> None:
    pcm = np.frombuffer(wave_to_pcm16(np.array([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=np.float32)), "<i2")
    assert pcm.tolist() == [-32768, -32768, 0, 32767, 32767]
