"""The vocoder's excitation: sines at a pitch and its harmonics, noise elsewhere (NSF, Wang et al.,
2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLE_RATE_HZ = 24_000
HOP = 480
"""Samples a mel frame."""
SINES = 9
"""The pitch and eight harmonics."""

_VOICED_HZ = 10.0
_AMPLITUDE = 0.1
_VOICED_NOISE = 0.003


class HarmonicSource(nn.Module):
    """Pitch in Hz ``[batch, frames]`` and standard normal noise ``[batch, 480 * frames, 9]`` to
    ``[batch, 480 * frames]``. Phases start at zero with each call."""

    def __init__(self) -> None:
        super().__init__()
        self.l_linear = nn.Linear(SINES, 1)

    def forward(self, pitch: Tensor, noise: Tensor) -> Tensor:
        sines = _AMPLITUDE * torch.sin(_phases(pitch))
        voiced = (pitch > _VOICED_HZ).float().repeat_interleave(HOP, dim=1)[:, :, None]
        loudness = voiced * _VOICED_NOISE + (1 - voiced) * (_AMPLITUDE / 3)
        merged: Tensor = self.l_linear(sines * voiced + loudness * noise)
        return torch.tanh(merged[:, :, 0])


def _phases(pitch: Tensor) -> Tensor:
    """float32 ``[batch, 480 * frames, 9]``, in radians below one turn.

    The sum of turns is interpolated between the middles of the frames. In float64: after ten seconds the
    ninth harmonic has turned twenty thousand times, and float32 no longer holds its phase.
    """
    harmonics = torch.arange(1, SINES + 1, device=pitch.device, dtype=torch.float64)
    turns_a_sample = (pitch.double()[:, :, None] * harmonics / SAMPLE_RATE_HZ) % 1
    turns = torch.cumsum(turns_a_sample, dim=1) * HOP
    between = functional.interpolate(turns.transpose(1, 2), scale_factor=float(HOP), mode="linear")
    return ((between.transpose(1, 2) % 1) * (2 * math.pi)).float()
