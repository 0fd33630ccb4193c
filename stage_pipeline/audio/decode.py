"""Audio in: any file of any rate, width and channel count becomes float32 mono at the rate asked for.

wav, flac and Ogg are read by libsndfile in this process, everything else by FFmpeg in a confined one.
What can be decoded of a damaged or truncated file is decoded. Every failure is a ``StagewaveError``:
``audio_empty``, ``not_audio``, ``no_audio_stream``, ``audio_too_long``, ``too_large``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from stage_pipeline.audio.ffmpeg_source import open_ffmpeg
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.resampler import Resampler
from stage_pipeline.audio.sndfile_source import is_sndfile, open_sndfile
from stage_pipeline.audio.source import AudioSource
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import THINKER_RATE_HZ, Float32Wave

DEFAULT_LIMITS = DecodeLimits()
_RUN_SAMPLES = 32_768
"""Codecs give a thousand samples at a time; resampling, and what the caller does, wants longer runs."""
_GROWTH_S = 60


@dataclass(frozen=True, slots=True)
class DecodedAudio:
    """A whole file: ``wave`` is float32 ``[samples]`` mono in [-1, 1] at ``rate_hz``."""

    wave: Float32Wave
    rate_hz: int
    source_format: str
    source_rate_hz: int
    source_channels: int

    @property
    def duration_s(self) -> float:
        return len(self.wave) / self.rate_hz


def decode_blocks(
    file: BinaryIO, *, rate_hz: int = THINKER_RATE_HZ, limits: DecodeLimits = DEFAULT_LIMITS
) -> Iterator[Float32Wave]:
    """The sound of a seekable binary file, from its start, as float32 ``[samples]`` mono blocks in
    [-1, 1] at ``rate_hz``. Memory does not grow with the file. Errors come with ``next``, most of them
    before the first block. The file must be left alone meanwhile; it is not closed."""
    yield from _blocks(_open(file, limits), rate_hz, limits)


def decode_audio(
    file: BinaryIO,
    *,
    rate_hz: int = THINKER_RATE_HZ,
    limits: DecodeLimits = DEFAULT_LIMITS,
    between: Callable[[], None] = lambda: None,
) -> DecodedAudio:
    """All that ``decode_blocks`` gives in one piece, and what the file was. ``between`` is called after
    each block, and may raise to end it."""
    source = _open(file, limits)
    wave = np.zeros(_GROWTH_S * rate_hz, np.float32)
    end = 0
    for block in _blocks(source, rate_hz, limits):
        if end + len(block) > len(wave):
            # In place and in steps: hours of audio are never in memory twice.
            wave.resize(end + len(block) + _GROWTH_S * rate_hz, refcheck=False)
        wave[end : end + len(block)] = block
        end += len(block)
        between()
    wave.resize(end, refcheck=False)
    return DecodedAudio(wave, rate_hz, source.format, source.rate_hz, source.channels)


def _open(file: BinaryIO, limits: DecodeLimits) -> AudioSource:
    limits.check_size(file.seek(0, os.SEEK_END))
    file.seek(0)
    source = open_sndfile(file, limits) if is_sndfile(file.read(12)) else None
    # What libsndfile will not take, FFmpeg may: a rare codec in a wav, a data size of 0 in a streamed one.
    return source or open_ffmpeg(file, limits)


def _blocks(source: AudioSource, rate_hz: int, limits: DecodeLimits) -> Iterator[Float32Wave]:
    resampler: Resampler | None = None
    for in_hz, run in _runs(source, limits):
        if resampler is None or resampler.in_hz != in_hz:
            if resampler is not None:
                yield from _clipped(resampler.finish())
            resampler = Resampler(in_hz, rate_hz)
        yield from _clipped(resampler.feed(run))
    if resampler is None:
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the audio is empty: it has no samples")
    yield from _clipped(resampler.finish())


def _runs(source: AudioSource, limits: DecodeLimits) -> Iterator[tuple[int, Float32Wave]]:
    """Mono at the file's own rate, in runs of one rate; the length is counted on the way."""
    duration_s = 0.0
    rate_hz = samples = 0
    waves: list[Float32Wave] = []
    with closing(source.blocks):
        for block in source.blocks:
            duration_s += len(block.samples) / block.rate_hz
            limits.check_duration(duration_s)
            if samples and (block.rate_hz != rate_hz or samples >= _RUN_SAMPLES):
                yield rate_hz, np.concatenate(waves)
                waves, samples = [], 0
            rate_hz = block.rate_hz
            waves.append(_mono(block.samples))
            samples += len(block.samples)
    if samples:
        yield rate_hz, np.concatenate(waves)


def _mono(samples: Float32Wave) -> Float32Wave:
    """``[frames, channels]`` to the mean of the channels; what is no number is silence."""
    wave: Float32Wave = samples.mean(axis=1, dtype=np.float32)
    if not np.isfinite(wave).all():
        samples = np.where(np.isfinite(samples), samples, np.float32(0))
        wave = np.clip(samples, -1.0, 1.0).mean(axis=1, dtype=np.float32)
    # Before the resampler, or one absurd sample would ring in its neighbours.
    return np.clip(wave, -1.0, 1.0)


def _clipped(wave: Float32Wave) -> Iterator[Float32Wave]:
    if len(wave):
        yield np.clip(wave, -1.0, 1.0)
