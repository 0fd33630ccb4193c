"""Whether a recording can be a voice's prompt: its length, level, silence and clipping."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage_pipeline.errors import ErrorCode, StagewaveError

# Below 2 s there is too little to hear a voice by (and Step-Audio2's DiT wants 100 frames to hold on to);
# above 16.9 s its official caches of 1000 frames overflow while streaming.
SHORTEST_S = 2.0
LONGEST_S = 16.9
# Below 16 kHz there is nothing of what tells voices apart above 4 kHz.
LOWEST_RATE_HZ = 16_000
# Refused when the loudest moment is fainter than -34 dB, when more than 1 % of it is clipped, or when less
# than 30 % of its pieces of 25 ms are within 35 dB of the loudest one.
_FAINTEST_PEAK = 0.02
_CLIPPED = 0.999
_MOST_CLIPPED = 0.01
_PIECE_S = 0.025
_QUIET = 10 ** (-35 / 20)
_LEAST_SPOKEN = 0.3


def check_wave(wave: npt.NDArray[np.float32], rate_hz: int) -> None:
    """``wave``: float32 ``[samples]`` in [-1, 1]. Raises ``StagewaveError`` that says what is wrong."""
    if not len(wave):
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "a voice has no samples")
    if len(wave) < SHORTEST_S * rate_hz:
        raise StagewaveError(ErrorCode.AUDIO_TOO_SHORT, f"a voice must last {SHORTEST_S} s at least")
    size = np.abs(wave)
    if size.max() == 0:
        raise StagewaveError(ErrorCode.AUDIO_SILENT, "a voice is silent")
    if size.max() < _FAINTEST_PEAK:
        raise StagewaveError(ErrorCode.AUDIO_TOO_QUIET, "a voice is too faint: record it at a higher level")
    if (size >= _CLIPPED).mean() > _MOST_CLIPPED:
        raise StagewaveError(ErrorCode.AUDIO_CLIPPED, "a voice is clipped: record it at a lower level")
    piece = round(_PIECE_S * rate_hz)
    pieces = size[: len(size) // piece * piece].reshape(-1, piece)
    loudness = np.sqrt(np.square(pieces, dtype=np.float64).mean(1))
    if (loudness > loudness.max() * _QUIET).mean() < _LEAST_SPOKEN:
        raise StagewaveError(ErrorCode.AUDIO_SILENT, "a voice is silent for most of its time")


def rate_too_low(rate_hz: int) -> StagewaveError:
    return StagewaveError(
        ErrorCode.AUDIO_RATE_TOO_LOW,
        f"a voice has {rate_hz} Hz; it must have {LOWEST_RATE_HZ} Hz at least",
    )
