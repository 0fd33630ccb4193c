"""The vocoder, HiFT-GAN: a mel spectrogram to a 24 kHz wave (Li et al., 2023; Kong et al., 2020).

Names are the checkpoint's, with weight norm folded in. An item shorter than its batch is computed as if
alone: whatever a convolution reads beyond its end is zero, as at the end of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.harmonic_source import HOP, HarmonicSource
from stage_pipeline.engines.step_audio2.token2wav.short_fourier import BINS, FFT_HOP, ShortFourier

# Fixed by the architecture: real and tiny checkpoints differ in their widths only.
_RATES = (8, 5, 3)
_KERNELS = (16, 11, 7)
_RESBLOCK_KERNELS = (3, 7, 11)
_SOURCE_KERNELS = (7, 7, 11)
_DILATIONS = (1, 3, 5)
_SLOPE = 0.1
_LAST_SLOPE = 0.01
_LARGEST_MAGNITUDE = 1e2
_LOUDEST = 0.99


BlockEnd: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""What a block ends with, to be added: its input, its last product, and the bias of that."""


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

    def beyond(self, time: int, per_frame: int, more: int = 0) -> Tensor | None:
        """What ``cut`` zeroes, bool ``[batch, 1, 1, time]``; None when it is nothing."""
        if self.frames is None:
            return None
        ends = self.frames[:, None] * per_frame + more
        return (torch.arange(time, device=ends.device) >= ends)[:, None, None]


# What stands between the convolutions, of ``[batch, channels, 1, time]``. It reads and writes more than
# they do: ``compile_pointwise`` makes one kernel of each function.


def activated(x: Tensor, bias: Tensor | None, alpha: Tensor, beyond: Tensor | None) -> Tensor:
    """Snake (Ziyin et al., 2020) of ``x + bias``: ``x + sin²(ax) / a``; zero ``beyond``."""
    wide = x.float() if bias is None else x.float() + bias[:, None, None]
    alpha = alpha[:, None, None]
    sine = torch.sin(wide * alpha)
    wide = torch.addcmul(wide, sine * (1 / (alpha + 1e-9)), sine)
    return (wide if beyond is None else wide.masked_fill(beyond, 0)).to(x.dtype)


def joined(x: Tensor, inner: Tensor, bias: Tensor, alpha: Tensor, beyond: Tensor | None) -> list[Tensor]:
    """The end of one pair of convolutions, and what the next begins with."""
    x = x + (inner + bias[:, None, None]).to(x.dtype)
    return [x, activated(x, None, alpha, beyond)]


def averaged(ends: list[BlockEnd]) -> Tensor:
    """The mean of blocks side by side."""
    total = torch.stack([(x + inner).float() + bias[:, None, None] for x, inner, bias in ends]).sum(0)
    return (total / len(ends)).to(ends[0][0].dtype)


@dataclass(frozen=True, slots=True)
class Pointwise:
    activated: Callable[[Tensor, Tensor | None, Tensor, Tensor | None], Tensor] = activated
    joined: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], list[Tensor]] = joined
    averaged: Callable[[list[BlockEnd]], Tensor] = averaged


class Snake(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))


class Convolution(nn.Conv1d):
    """Over ``[batch, channels, 1, time]``: the channels lie innermost in memory, as tensor cores want
    them."""

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.bias)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Without the bias, which is added with what follows."""
        return functional.conv2d(
            x, self.weight, bias, (1, *self.stride), (0, *self.padding), (1, *self.dilation)
        )


class TransposedConvolution(nn.ConvTranspose1d):
    """As ``Convolution``."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return functional.conv_transpose2d(x, self.weight, self.bias, (1, *self.stride), (0, *self.padding))


class ResBlock(nn.Module):
    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()

        def convolution(dilation: int) -> nn.Conv1d:
            return Convolution(
                channels, channels, kernel, dilation=dilation, padding=(kernel - 1) * dilation // 2
            )

        self.convs1 = nn.ModuleList(convolution(dilation) for dilation in _DILATIONS)
        self.convs2 = nn.ModuleList(convolution(1) for _ in _DILATIONS)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in _DILATIONS)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in _DILATIONS)

    def forward(self, x: Tensor, beyond: Tensor | None, pointwise: Pointwise) -> BlockEnd:
        """The result is the sum of the three."""
        pairs = [
            (
                cast(Convolution, first),
                cast(Convolution, second),
                cast(Snake, before).alpha.detach(),
                cast(Snake, between).alpha.detach(),
            )
            for first, second, before, between in zip(
                self.convs1, self.convs2, self.activations1, self.activations2, strict=True
            )
        ]
        active = pointwise.activated(x, None, pairs[0][2], beyond)
        for index, (first, second, _, between) in enumerate(pairs):
            inner = pointwise.activated(first.product(active), _bias(first), between, beyond)
            inner = second.product(inner)
            if index + 1 < len(pairs):
                x, active = pointwise.joined(x, inner, _bias(second), pairs[index + 1][2], beyond)
        return x, inner, _bias(second)


def _bias(convolution: Convolution) -> Tensor:
    # As a plain tensor: a parameter would be compiled for its own shape.
    return cast(Tensor, convolution.bias).detach()


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
    """Call ``settle`` when the weights are loaded. The pitch, the source and the transforms are float32."""

    def __init__(self, mels: int, channels: int, f0_width: int) -> None:
        super().__init__()
        self.m_source = HarmonicSource()
        self.f0_predictor = F0Predictor(mels, f0_width)
        self.conv_pre = Convolution(mels, channels, 7, padding=3)
        self.ups = nn.ModuleList()
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for stage, (rate, kernel) in enumerate(zip(_RATES, _KERNELS, strict=True)):
            width = channels // 2 ** (stage + 1)
            self.ups.append(
                TransposedConvolution(2 * width, width, kernel, rate, padding=(kernel - rate) // 2)
            )
            down = math.prod(_RATES[stage + 1 :])
            shape = (1, 1, 0) if down == 1 else (2 * down, down, down // 2)
            self.source_downs.append(Convolution(2 * BINS, width, shape[0], shape[1], padding=shape[2]))
            self.source_resblocks.append(ResBlock(width, _SOURCE_KERNELS[stage]))
            self.resblocks.extend(ResBlock(width, size) for size in _RESBLOCK_KERNELS)
        self.conv_post = Convolution(width, 2 * BINS, 7, padding=3)
        self.fourier = ShortFourier()
        self._pointwise = Pointwise()

    def settle(self, dtype: torch.dtype = torch.float32) -> None:
        """Lay out the weights of the convolutions after the source, in the precision they compute in."""
        for module in self.modules():
            if isinstance(module, Convolution | TransposedConvolution):
                weight = module.weight.detach()[:, :, None]
                weight = weight.to(dtype).contiguous(memory_format=torch.channels_last)
                module.weight = nn.Parameter(weight, requires_grad=False)
                module.bias = nn.Parameter(cast(Tensor, module.bias).to(dtype), requires_grad=False)

    def compile_pointwise(self) -> None:
        """Join what stands between the convolutions with ``torch.compile``."""
        self._pointwise = Pointwise(
            torch.compile(activated, dynamic=True),
            torch.compile(joined, dynamic=True),
            torch.compile(averaged, dynamic=True),
        )
        self.m_source.compile(dynamic=True)  # type: ignore[no-untyped-call]  # torch has no types for it

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
        spectrum = self._inner(lengths.cut(spectrum, HOP // FFT_HOP, 1))
        x = self.conv_pre(self._inner(lengths.cut(mel.transpose(1, 2), 1)))
        per_frame, more = 1, 0
        beyond = lengths.beyond(x.shape[-1], per_frame)
        for stage, rate in enumerate(_RATES):
            x = self.ups[stage](_leaked(x, _SLOPE, beyond))
            per_frame *= rate
            if stage == len(_RATES) - 1:
                # One more than 120 a frame, since the transform's frames stand on both ends: a reflection.
                x = torch.cat([x[..., 1:2], x], dim=-1)
                more = 1
            beyond = lengths.beyond(x.shape[-1], per_frame, more)
            down = self.source_downs[stage](spectrum)
            from_source = self.source_resblocks[stage](down, beyond, self._pointwise)
            x = x + self._pointwise.averaged([from_source])
            blocks = self.resblocks[stage * len(_RESBLOCK_KERNELS) : (stage + 1) * len(_RESBLOCK_KERNELS)]
            x = self._pointwise.averaged([block(x, beyond, self._pointwise) for block in blocks])
        x = self.conv_post(_leaked(x, _LAST_SLOPE, beyond))[:, :, 0].float()
        magnitude, phase = x.split(BINS, dim=1)
        magnitude = magnitude.exp().clamp(max=_LARGEST_MAGNITUDE)
        wave = self.fourier.inverse(magnitude, torch.sin(phase), None if frames is None else frames * HOP)
        return wave.clamp(-_LOUDEST, _LOUDEST)

    def _inner(self, x: Tensor) -> Tensor:
        """``[batch, channels, time]`` as the convolutions take it."""
        return x[:, :, None].to(self.conv_pre.weight.dtype, memory_format=torch.channels_last)


def _leaked(x: Tensor, slope: float, beyond: Tensor | None) -> Tensor:
    x = functional.leaky_relu(x, slope)
    return x if beyond is None else x.masked_fill(beyond, 0)
