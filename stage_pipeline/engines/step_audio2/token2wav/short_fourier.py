"""The vocoder's short Fourier transform, both ways, as convolutions: 16 samples a frame, every 4 samples.

Written out because ``torch.istft`` checks its window on the host, which no CUDA graph can take, and because
an item's own end, not the tensor's, is where a shorter item is reflected and normalised.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZE = 16
FFT_HOP = 4
BINS = SIZE // 2 + 1
_HALF = SIZE // 2


class ShortFourier(nn.Module):
    """Centred, with a periodic Hann window and reflected ends."""

    analysis: Tensor
    synthesis: Tensor
    window_power: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Constants, and never on the meta device that a checkpoint is loaded on.
        with torch.device("cpu"):
            time = torch.arange(SIZE, dtype=torch.float64)
            angles = 2 * math.pi / SIZE * torch.arange(BINS, dtype=torch.float64)[:, None] * time
            window = 0.5 - 0.5 * torch.cos(2 * math.pi / SIZE * time)
            analysis = torch.cat([torch.cos(angles), -torch.sin(angles)]) * window
            # A real signal's bins count twice, except the first and the last.
            weight = torch.full((BINS, 1), 2.0, dtype=torch.float64)
            weight[0] = weight[-1] = 1
            waves = torch.cat([weight * torch.cos(angles), -weight * torch.sin(angles)]) / SIZE * window
        self.register_buffer("analysis", analysis.float()[:, None], persistent=False)
        self.register_buffer("synthesis", waves.float()[:, None], persistent=False)
        self.register_buffer("window_power", window.square().float()[None, None], persistent=False)

    def forward(self, wave: Tensor, samples: Tensor | None) -> Tensor:
        """``[batch, n]`` to ``[batch, 18, n / 4 + 1]``: real parts, then imaginary. ``samples`` int
        ``[batch]``: where each item ends, None for the end of the tensor."""
        if samples is None:
            extended = functional.pad(wave[:, None], (_HALF, _HALF), mode="reflect")
        else:
            place = torch.arange(-_HALF, wave.shape[1] + _HALF, device=wave.device).abs()
            last = samples[:, None] - 1
            place = torch.where(place > last, 2 * last - place, place).clamp(min=0)
            extended = wave.gather(1, place)[:, None]
        return functional.conv1d(extended, self.analysis, stride=FFT_HOP)

    def inverse(self, magnitude: Tensor, phase: Tensor, samples: Tensor | None) -> Tensor:
        """``[batch, 9, n / 4 + 1]`` each to ``[batch, n]``; what stands behind an item's end is not
        defined."""
        spectrum = torch.cat([magnitude * torch.cos(phase), magnitude * torch.sin(phase)], dim=1)
        frames = spectrum.shape[2]
        if samples is None:
            there = spectrum.new_ones(1, 1, frames)
        else:
            there = (torch.arange(frames, device=samples.device) <= samples[:, None] // FFT_HOP)[
                :, None
            ].float()
            spectrum = spectrum * there
        wave = functional.conv_transpose1d(spectrum, self.synthesis, stride=FFT_HOP)
        power = functional.conv_transpose1d(there, self.window_power, stride=FFT_HOP)
        # Frames overlap four times; the power is 0 only behind an item's end.
        return (wave / power.clamp(min=1e-8))[:, 0, _HALF:-_HALF]
