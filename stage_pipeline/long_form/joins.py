"""Joins utterances that were voiced one by one: no click between them, and a pause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stage_pipeline.stages import Float32Wave

_FADE_S = 0.005


class Joins:
    """Takes one job's waves as they come, and holds the last five milliseconds back, which fade out should
    an utterance end there. The first begins, and the last ends, as it was voiced."""

    def __init__(self, rate_hz: int, given: int = 0) -> None:
        """``given``: samples that were played before, to the end of a pause."""
        self._rate_hz = rate_hz
        self._ramp = np.linspace(0.0, 1.0, round(_FADE_S * rate_hz), dtype=np.float32)
        self._held = _NOTHING
        self._risen = 0 if given else len(self._ramp)
        """How much of the ramp up is done."""
        self._given = given

    def until(self, at_ms: int) -> Iterator[Float32Wave]:
        """Silence up to a place in the whole, before an utterance; none if that is past."""
        missing = at_ms * self._rate_hz // 1000 - self._given
        while missing > 0:
            size = min(missing, self._rate_hz)
            missing -= size
            yield self._give(np.zeros(size, np.float32))

    def add(self, wave: Float32Wave) -> Float32Wave:
        """What may be played now of a wave that follows."""
        rising = self._ramp[self._risen : self._risen + len(wave)]
        if len(rising):
            wave = np.concatenate([wave[: len(rising)] * rising, wave[len(rising) :]])
            self._risen += len(rising)
        wave = np.concatenate([self._held, wave])
        played = max(0, len(wave) - len(self._ramp))
        self._held = wave[played:]
        return self._give(wave[:played])

    def join(self, pause_ms: int) -> Float32Wave:
        """The end of an utterance that another follows."""
        falling = self._ramp[::-1][len(self._ramp) - len(self._held) :]
        pause = np.zeros(round(pause_ms * self._rate_hz / 1000), np.float32)
        wave = np.concatenate([self._held * falling, pause])
        self._held, self._risen = _NOTHING, 0
        return self._give(wave)

    def finish(self) -> Float32Wave:
        """The end of the last one."""
        wave, self._held = self._held, _NOTHING
        return self._give(wave)

    def _give(self, wave: Float32Wave) -> Float32Wave:
        self._given += len(wave)
        return wave


_NOTHING: Float32Wave = np.zeros(0, np.float32)
