"""Brings speech to a loudness (ITU-R BS.1770, EBU R 128): exactly when it is whole, about while it is made.

FFmpeg's ``ebur128`` measures, through PyAV. What would then be louder than full scale is bent, not clipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol

import av
import av.filter
import numpy as np
import numpy.typing as npt

_BLOCKS_A_SECOND = 10
"""Of the meter: it says what it has heard so far every 100 ms."""
_FIRST_BLOCKS = 4
"""What BS.1770 needs to say anything: 400 ms."""
_NOTHING_LUFS = -70.0
"""What the meter says while all is silent; quieter audio counts as silence."""
_MOST_DB = 30.0
_MOST_LIVE_DB = 15.0
"""Speech may begin with noise that it is not to be taken for."""
_RISE_DB = 0.3
"""Most that a live gain goes up in 100 ms; down it goes at once, since too loud is worse than too faint."""
_KNEE, _CEILING = 0.7, 0.89
"""Samples above the one are bent towards the other: a decibel under full scale, as EBU R 128 has it."""


class Gain(Protocol):
    """int16 little-endian mono samples in, the same number of them out, over all."""

    def feed(self, pcm16: bytes) -> bytes: ...

    def finish(self) -> bytes:
        """The samples that were held back."""
        ...


class WholeGain:
    """The same gain for all samples, of audio that is known to its end."""

    def __init__(self, target_lufs: float, rate_hz: int, blocks: Iterable[bytes]) -> None:
        """``blocks``: all of the audio's samples, to be measured."""
        meter = LoudnessMeter(rate_hz)
        heard = _NOTHING_LUFS
        for pcm16 in blocks:
            heard = ([heard, *meter.feed(pcm16)])[-1]
        self._factor = _factor(_wanted_db(target_lufs, heard) or 0.0)

    def feed(self, pcm16: bytes) -> bytes:
        return _louder(np.frombuffer(pcm16, "<i2"), self._factor)

    def finish(self) -> bytes:
        return b""


class LiveGain:
    """A gain that follows what has been heard so far, for audio that is listened to while it is made. It
    holds back the first 400 ms, and later the samples of a begun 100 ms. The cut of the blocks makes no
    difference to any sample."""

    def __init__(self, target_lufs: float, rate_hz: int) -> None:
        self._target_lufs = target_lufs
        self._meter = LoudnessMeter(rate_hz)
        self._block = rate_hz // _BLOCKS_A_SECOND
        self._held = np.zeros(0, "<i2")
        self._measured: list[float] = []
        self._done = 0
        self._db: float | None = None

    def feed(self, pcm16: bytes) -> bytes:
        self._held = np.concatenate([self._held, np.frombuffer(pcm16, "<i2")])
        self._measured += self._meter.feed(pcm16)
        levelled = b""
        while len(self._measured) > max(self._done, _FIRST_BLOCKS - 1):
            levelled += self._level(self._measured[max(self._done, _FIRST_BLOCKS - 1)], self._block)
            self._done += 1
        return levelled

    def finish(self) -> bytes:
        heard = self._measured[-1] if self._measured else _NOTHING_LUFS
        return self._level(heard, len(self._held))

    def _level(self, heard_lufs: float, samples: int) -> bytes:
        block, self._held = self._held[:samples], self._held[samples:]
        before = self._db
        wanted = _wanted_db(self._target_lufs, heard_lufs, _MOST_LIVE_DB)
        if before is None:
            self._db = before = wanted
        elif wanted is not None:
            self._db = min(wanted, before + _RISE_DB)
        ramp = np.linspace(before or 0.0, self._db or 0.0, len(block), dtype=np.float32)
        return _louder(block, _factor(ramp))


class LoudnessMeter:
    """Integrated loudness so far, for each 100 ms that have gone in."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._samples = 0
        self._time_base = Fraction(1, rate_hz)
        self._graph = av.filter.Graph()
        self._source = self._graph.add_abuffer(
            sample_rate=rate_hz, format="s16", layout="mono", time_base=self._time_base
        )
        meter, self._sink = self._graph.add("ebur128", "metadata=1"), self._graph.add("abuffersink")
        self._source.link_to(meter)
        meter.link_to(self._sink)
        self._graph.configure()

    def feed(self, pcm16: bytes) -> list[float]:
        """In LUFS; 400 ms are needed to say more than that all is silent."""
        if not pcm16:
            return []
        samples = np.frombuffer(pcm16, "<i2")
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = self._rate_hz
        frame.time_base = self._time_base
        frame.pts = self._samples
        self._samples += len(samples)
        self._source.push(frame)
        measured: list[float] = []
        while True:
            try:
                heard = self._sink.pull()
            except (av.BlockingIOError, av.EOFError):
                return measured
            measured.append(float(heard.metadata["lavfi.r128.I"]))


def _wanted_db(target_lufs: float, heard_lufs: float, most_db: float = _MOST_DB) -> float | None:
    """None for what is silent: no gain would make it louder."""
    if not heard_lufs > _NOTHING_LUFS:
        return None
    return min(target_lufs - heard_lufs, most_db)


def _factor(decibels: float | npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    factor: npt.NDArray[np.float32] = np.power(
        np.float32(10), np.asarray(decibels, np.float32) / np.float32(20)
    )
    return factor


def _louder(samples: npt.NDArray[np.int16], factor: npt.NDArray[np.float32]) -> bytes:
    raised = samples.astype(np.float32) / np.float32(32768) * factor
    size = np.abs(raised)
    room = np.float32(_CEILING - _KNEE)
    bent = np.float32(_KNEE) + room * np.tanh((size - np.float32(_KNEE)) / room)
    wave = np.where(size <= _KNEE, raised, np.sign(raised) * bent)
    pcm: npt.NDArray[np.int16] = np.rint(wave * np.float32(32768)).astype("<i2")
    return pcm.tobytes()
