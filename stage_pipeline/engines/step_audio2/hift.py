"""The vocoder, HiFT-GAN: a mel spectrogram to a 24 kHz wave (Li et al., 2023; Kong et al., 2020).

Names are the checkpoint's, with weight norm folded in. An item shorter than its batch is computed as if
alone: whatever a convolution reads beyond its end is zero, as at the end of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.harmonic_source import HOP, HarmonicSource
from stage_pipeline.engines.step_audio2.short_fourier import BINS, FFT_HOP, ShortFourier

# Fixed by the architecture: real and tiny checkpoints differ in their widths only.
_RATES = (8, 5, 3)
_KERNELS = (16, 11, 7)
_RESBLOCK_KERNELS = (3, 7, 11)
_SOURCE_KERNELS = (7, 7, 11)
_DILATIONS = (1, 3, 5)
_SLOPE = 0.1
_LARGEST_MAGNITUDE = 1e2
_LOUDEST = 0.99


class Lengths:
    """How many mel frames of each item are real; all of them where it is None."""

    def __init__(self, frames: Tensor | None) -> None:
        self.frames = frames

    def cut(self, x: Tensor, per_frame: int, more: int = 0) -> Tensor:
        """Zero ``[batch, channels, time]`` behind the end of each item, ``frames * per_frame + more``."""
        if self.frames is None:
            return x
        ends = self.frames[:, None] * per_frame + more
        beyond = torch.arange(x.shape[-1], device=x.device) >= ends
        return x.masked_fill(beyond[:, None], 0)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """x + sin²(ax) / a (Ziyin et al., 2020)."""
    sine = torch.sin(x * alpha)
    return torch.addcmul(x, sine * (1 / (alpha + 1e-9)), sine)


class Snake(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))
        self.function: Callable[[Tensor, Tensor], Tensor] = snake

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.alpha[:, None])


class ResBlock(nn.Module):
    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()

        def convolution(dilation: int) -> nn.Conv1d:
            return nn.Conv1d(
                channels, channels, kernel, dilation=dilation, padding=(kernel - 1) * dilation // 2
            )

        self.convs1 = nn.ModuleList(convolution(dilation) for dilation in _DILATIONS)
        self.convs2 = nn.ModuleList(convolution(1) for _ in _DILATIONS)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in _DILATIONS)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in _DILATIONS)

    def forward(self, x: Tensor, lengths: Lengths, per_frame: int, more: int) -> Tensor:
        for conv1, conv2, act1, act2 in zip(
            self.convs1, self.convs2, self.activations1, self.activations2, strict=True
        ):
            inner = conv1(lengths.cut(act1(x), per_frame, more))
            x = x + conv2(lengths.cut(act2(inner), per_frame, more))
        return x


class F0Predictor(nn.Module):
    """``[batch, mels, frames]`` to the pitch in Hz, ``[batch, frames]``."""

    def __init__(self, mels: int, width: int) -> None:
        super().__init__()
        self.condnet = nn.Sequential()
        for index in range(5):
            self.condnet.append(nn.Conv1d(width if index else mels, width, 3, padding=1))
            self.condnet.append(nn.ELU())
        self.classifier = nn.Linear(width, 1)

    def forward(self, mel: Tensor, lengths: Lengths) -> Tensor:
        x = mel
        for layer in self.condnet:
            x = layer(lengths.cut(x, 1) if isinstance(layer, nn.Conv1d) else x)
        pitch: Tensor = self.classifier(x.transpose(1, 2))
        return lengths.cut(pitch.abs().transpose(1, 2), 1)[:, 0]


class HiFT(nn.Module):
    """float32 throughout."""

    def __init__(self, mels: int, channels: int, f0_width: int) -> None:
        super().__init__()
        self.m_source = HarmonicSource()
        self.f0_predictor = F0Predictor(mels, f0_width)
        self.conv_pre = nn.Conv1d(mels, channels, 7, padding=3)
        self.ups = nn.ModuleList()
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for stage, (rate, kernel) in enumerate(zip(_RATES, _KERNELS, strict=True)):
            width = channels // 2 ** (stage + 1)
            self.ups.append(
                nn.ConvTranspose1d(2 * width, width, kernel, rate, padding=(kernel - rate) // 2)
            )
            down = math.prod(_RATES[stage + 1 :])
            shape = (1, 1, 0) if down == 1 else (2 * down, down, down // 2)
            self.source_downs.append(nn.Conv1d(2 * BINS, width, shape[0], shape[1], padding=shape[2]))
            self.source_resblocks.append(ResBlock(width, _SOURCE_KERNELS[stage]))
            self.resblocks.extend(ResBlock(width, size) for size in _RESBLOCK_KERNELS)
        self.conv_post = nn.Conv1d(width, 2 * BINS, 7, padding=3)
        self.fourier = ShortFourier()

    def compile_activations(self) -> None:
        """Let ``torch.compile`` make one kernel of each: they read and write more than the convolutions
        do."""
        compiled = torch.compile(snake, dynamic=True)
        for module in self.modules():
            if isinstance(module, Snake):
                module.function = compiled

    def source(self, mel: Tensor, noise: Tensor, frames: Tensor | None = None) -> Tensor:
        """``mel`` ``[batch, frames, mels]`` and normal ``noise`` ``[batch, 480 * frames, 9]`` to the
        excitation, ``[batch, 480 * frames]``."""
        lengths = Lengths(frames)
        pitch = self.f0_predictor(mel.transpose(1, 2), lengths)
        excitation: Tensor = self.m_source(pitch, noise)
        return excitation

    def decode(self, mel: Tensor, source: Tensor, frames: Tensor | None = None) -> Tensor:
        """``[batch, 480 * frames]`` samples within ±0.99; ``frames`` int ``[batch]``, None when all are
        full."""
        lengths = Lengths(frames)
        spectrum = self.fourier.forward(source, None if frames is None else frames * HOP)
        spectrum = lengths.cut(spectrum, HOP // FFT_HOP, 1)
        x = self.conv_pre(lengths.cut(mel.transpose(1, 2), 1))
        per_frame, more = 1, 0
        for stage, rate in enumerate(_RATES):
            x = self.ups[stage](lengths.cut(functional.leaky_relu(x, _SLOPE), per_frame))
            per_frame *= rate
            if stage == len(_RATES) - 1:
                # One more than 120 a frame, since the transform's frames stand on both ends.
                x = functional.pad(x, (1, 0), mode="reflect")
                more = 1
            down = self.source_downs[stage](spectrum)
            x = x + self.source_resblocks[stage](down, lengths, per_frame, more)
            blocks = self.resblocks[stage * len(_RESBLOCK_KERNELS) : (stage + 1) * len(_RESBLOCK_KERNELS)]
            x = torch.stack([block(x, lengths, per_frame, more) for block in blocks]).mean(0)
        x = self.conv_post(lengths.cut(functional.leaky_relu(x), per_frame, more))
        magnitude, phase = x.split(BINS, dim=1)
        magnitude = magnitude.exp().clamp(max=_LARGEST_MAGNITUDE)
        wave = self.fourier.inverse(magnitude, torch.sin(phase), None if frames is None else frames * HOP)
        return wave.clamp(-_LOUDEST, _LOUDEST)
