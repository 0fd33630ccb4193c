"""Some hundred files damaged by a seeded dice: audio or a typed error, never anything else, and soon."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import numpy as np
import pytest

from stage_pipeline.audio import ffmpeg_process as process
from stage_pipeline.audio.decode import decode_audio
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.sndfile_source import open_sndfile
from stage_pipeline.errors import ErrorCode, StagewaveError

from .recordings import WAV_ENCODINGS, media, sndfile, speech

REFUSALS = (
    ErrorCode.NOT_AUDIO,
    ErrorCode.NO_AUDIO_STREAM,
    ErrorCode.AUDIO_EMPTY,
    ErrorCode.AUDIO_TOO_LONG,
)
LIMITS = DecodeLimits(duration_s=60)
LONGEST_S = 5.0


def damaged(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Bits turned over, in the head above all; pieces cut out, put in twice, or filled with noise."""
    dice = np.random.default_rng(seed)
    for _ in range(count):
        broken = bytearray(data)
        for _ in range(int(dice.integers(1, 12))):
            end = min(len(broken), 200) if dice.random() < 0.6 else len(broken)
            broken[int(dice.integers(end))] ^= 1 << int(dice.integers(8))
        start, size = int(dice.integers(len(broken))), int(dice.integers(1, 2000))
        match int(dice.integers(5)):
            case 0:
                del broken[start : start + size]
            case 1:
                broken[start:start] = broken[start : start + size]
            case 2:
                broken[start : start + size] = dice.bytes(size)
            case 3:
                del broken[start + 1 :]
        yield bytes(broken)


def small(name: str) -> bytes:
    if name in WAV_ENCODINGS:
        return sndfile(speech()[:8000], subtype=name)
    return media(name)


@pytest.mark.parametrize("name", [*WAV_ENCODINGS, "flac", "ogg", "opus"])
def test_libsndfile_gives_audio_or_nothing_of_a_damaged_file(name: str) -> None:
    for data in damaged(small(name), seed=11, count=20):
        began = time.monotonic()
        try:
            source = open_sndfile(io.BytesIO(data), LIMITS)
            for block in source.blocks if source else ():
                assert block.samples.ndim == 2
        except StagewaveError as error:
            assert error.code in REFUSALS
        assert time.monotonic() - began < LONGEST_S


@pytest.mark.parametrize(
    "name", ["mp3", "m4a", "webm", "mov", "aac", "ts", "amr", "wma", "avi", "flac", "aiff", "wv"]
)
def test_ffmpeg_answers_a_damaged_file_with_audio_or_a_reason(name: str) -> None:
    for data in damaged(media(name), seed=23, count=15):
        began = time.monotonic()
        out = io.BytesIO()
        process.answer(lambda data=data: io.BytesIO(data), out, LIMITS.duration_s)
        kinds, rest = [], out.getvalue()
        while rest:
            kind, size, *_ = process.HEAD.unpack_from(rest)
            kinds.append(kind)
            rest = rest[process.HEAD.size + size :]
        assert kinds[-1] in (process.END, process.FAILED)
        assert time.monotonic() - began < LONGEST_S


@pytest.mark.parametrize("name", ["PCM_16", "flac", "opus", "mp3", "m4a", "webm", "amr", "ts"])
def test_the_whole_way_gives_audio_or_a_typed_error(name: str) -> None:
    for data in damaged(small(name), seed=37, count=2):
        try:
            wave = decode_audio(io.BytesIO(data), limits=LIMITS).wave
            assert np.isfinite(wave).all()
            assert np.abs(wave).max() <= 1
        except StagewaveError as error:
            assert error.code in REFUSALS


def test_random_bytes_behind_each_known_beginning_are_audio_or_a_typed_error() -> None:
    beginnings = [b"RIFF\xff\xff\0\0WAVEfmt ", b"fLaC", b"OggS\0\2", b"ID3\4\0\0\0\0\1\0", b"\xff\xfb\x90"]
    beginnings += [b"\0\0\0\x20ftypM4A ", b"\x1a\x45\xdf\xa3", b"#!AMR\n", b"FORM\0\0\1\0AIFF", b"\x47" * 3]
    dice = np.random.default_rng(5)
    for beginning in beginnings:
        try:
            decode_audio(io.BytesIO(beginning + dice.bytes(20_000)), limits=LIMITS)
        except StagewaveError as error:
            assert error.code in REFUSALS
