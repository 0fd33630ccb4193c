"""Windowed-sinc resampling of a whole wave, exactly as the voices of Step-Audio2 are prepared officially.

Smith's bandlimited interpolation: a sinc of 6 zero crossings under a Hann window, cut off at 0.99 of the
lower Nyquist frequency. The streaming resampler of ``stage_pipeline.audio`` is another filter (off by up
to 0.03).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_CROSSINGS = 6
_ROLLOFF = 0.99


def resample(wave: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """float32 ``[samples]`` to ``[ceil(samples * to / from)]``."""
    if from_hz == to_hz:
        return wave
    common = math.gcd(from_hz, to_hz)
    old, new = from_hz // common, to_hz // common
    cutoff = min(old, new) * _ROLLOFF
    reach = math.ceil(_CROSSINGS * old / cutoff)
    at = torch.arange(-reach, reach + old, dtype=torch.float64)[None] / old
    phase = -torch.arange(new, dtype=torch.float64)[:, None] / new
    time = ((at + phase) * cutoff).clamp(-_CROSSINGS, _CROSSINGS)
    kernels = torch.sinc(time) * torch.cos(time * (math.pi / _CROSSINGS / 2)).square() * (cutoff / old)
    padded = functional.pad(wave, (reach, reach + old))
    filtered = functional.conv1d(padded[None, None], kernels.float()[:, None], stride=old)
    return filtered[0].T.flatten()[: math.ceil(len(wave) * new / old)]
