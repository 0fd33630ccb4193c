"""A streaming change of sample rate, exact across block borders."""

from __future__ import annotations

import av
import numpy as np

from stage_pipeline.stages import Float32Wave


class Resampler:
    """float32 ``[samples]`` mono at one rate in, at another out, without delay: ``n`` samples become
    ``n * out_hz / in_hz``, give or take one. The cut of the blocks makes no difference to any sample.

    It is libswresample: 91 dB down in the stop band, a signal 100 dB and more over its noise. That is
    under what any speech model hears, and PyAV brings it along.
    """

    def __init__(self, in_hz: int, out_hz: int) -> None:
        self.in_hz = in_hz
        self.out_hz = out_hz
        self._resampler = av.AudioResampler(format="flt", layout="mono", rate=out_hz)
        self._in_samples = 0
        self._out_samples = 0

    def feed(self, wave: Float32Wave) -> Float32Wave:
        if self.in_hz == self.out_hz or not len(wave):
            return wave
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(wave[None]), format="flt", layout="mono")
        frame.sample_rate = self.in_hz
        resampled = _join(self._resampler.resample(frame))
        self._in_samples += len(wave)
        self._out_samples += len(resampled)
        return resampled

    def finish(self) -> Float32Wave:
        """What is still inside; nothing may be fed afterwards."""
        if not self._in_samples:
            return np.zeros(0, np.float32)
        rest = _join(self._resampler.resample(None))
        # Of less than its filter's length, a millisecond or so, libswresample gives nothing.
        least = max(1, self._in_samples * self.out_hz // self.in_hz)
        missing = least - self._out_samples - len(rest)
        return np.pad(rest, (0, max(0, missing)))


def _join(frames: list[av.AudioFrame]) -> Float32Wave:
    waves = [np.asarray(frame.to_ndarray()[0], np.float32) for frame in frames]
    return np.concatenate(waves) if waves else np.zeros(0, np.float32)
