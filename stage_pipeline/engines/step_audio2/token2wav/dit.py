"""The estimator: a diffusion transformer (Peebles & Xie, 2023) with a causal convolution in each block.

No positions: order comes from the convolutions alone. All tensors are ``[batch, frames, channels]``;
names are the checkpoint's, until ``fuse`` joins what is computed together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.flow_config import EstimatorConfig
from stage_pipeline.engines.step_audio2.token2wav.memory import AttendingMemory, Memory

CONVOLUTION_CONTEXT = 2
CONVOLUTIONS = 2
"""A layer's causal convolutions, and how many frames before it each sees."""

_TIME_WIDTH = 256
_TIME_SCALE = 1000


@dataclass(frozen=True, slots=True)
class Modulation:
    """What one time step does: shifts, scales (the one of ``1 + scale`` is in them) and gates.
    ``blocks``: ``[layers, 9, width]``, ``last``: ``[2, width]``."""

    blocks: Tensor
    last: Tensor


class CausalConvolution(nn.Module):
    """Three taps: this frame and the two before. Computed as one product over the taps side by side,
    which needs no change of layout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width, CONVOLUTION_CONTEXT + 1))
        self.bias = nn.Parameter(torch.zeros(width))
        self.taps: Tensor | None = None

    def fuse(self) -> None:
        self.taps = self.weight.detach().permute(0, 2, 1).flatten(1).contiguous()
        del self.weight

    def forward(self, extended: Tensor) -> Tensor:
        frames = extended.shape[1] - CONVOLUTION_CONTEXT
        side_by_side = torch.cat([extended[:, tap : tap + frames] for tap in range(3)], dim=-1)
        taps = self.taps if self.taps is not None else self.weight.permute(0, 2, 1).flatten(1)
        return functional.linear(side_by_side, taps, self.bias)


def mish(x: Tensor) -> Tensor:
    """x · tanh(softplus(x)) (Misra, 2019), with one exponential: it is computed once for each tap."""
    # Beyond 20 it is x, to the last bit of a float32.
    power = torch.exp(x.float().clamp(max=20))
    power = power * (power + 2)
    return (x * (power / (power + 2))).to(x.dtype)


class ConvolutionBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        # Numbered as in the checkpoint; between them stand an activation and changes of layout.
        self.block = nn.ModuleDict(
            {"1": CausalConvolution(width), "3": nn.LayerNorm(width), "6": CausalConvolution(width)}
        )

    def fuse(self) -> None:
        for name in ("1", "6"):
            cast(CausalConvolution, self.block[name]).fuse()

    def forward(self, x: Tensor, memory: AttendingMemory) -> Tensor:
        x = self.block["1"](memory.before(0, x, CONVOLUTION_CONTEXT))
        x = mish(self.block["3"](x))
        out: Tensor = self.block["6"](memory.before(1, x, CONVOLUTION_CONTEXT))
        return out


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = head_width
        inner = heads * head_width
        self.to_q = nn.Linear(width, inner)
        self.to_k = nn.Linear(width, inner)
        self.to_v = nn.Linear(width, inner)
        self.q_norm = nn.LayerNorm(head_width)
        self.k_norm = nn.LayerNorm(head_width)
        self.proj = nn.Linear(inner, width)
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None

    def fuse(self) -> None:
        parts = (self.to_q, self.to_k, self.to_v)
        self.weight = torch.cat([part.weight.detach() for part in parts])
        self.bias = torch.cat([part.bias.detach() for part in parts])
        del self.to_q, self.to_k, self.to_v

    def forward(self, x: Tensor, memory: AttendingMemory) -> Tensor:
        batch, frames, _ = x.shape
        if self.weight is not None:
            joined = functional.linear(x, self.weight, self.bias)
        else:
            joined = torch.cat([self.to_q(x), self.to_k(x), self.to_v(x)], dim=-1)
        query, key, value = joined.view(batch, frames, 3, self.heads, self.head_width).unbind(2)
        attended = memory.attend(self.q_norm(query), torch.stack([self.k_norm(key), value], dim=2))
        out: Tensor = self.proj(attended.reshape(batch, frames, -1))
        return out


class Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(functional.gelu(self.fc1(x), approximate="tanh"))
        return out


class Block(nn.Module):
    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        width = config.width
        self.attn = Attention(width, config.heads, config.head_width)
        self.conv = ConvolutionBlock(width)
        self.mlp = Mlp(width, config.feed_forward)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 9 * width))

    def forward(self, x: Tensor, modulation: Tensor, memory: AttendingMemory) -> Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m, shift_c, scale_c, gate_c = modulation
        x = torch.addcmul(x, gate_a, self.attn(_modulated(x, shift_a, scale_a), memory))
        x = torch.addcmul(x, gate_c, self.conv(_modulated(x, shift_c, scale_c), memory))
        return torch.addcmul(x, gate_m, self.mlp(_modulated(x, shift_m, scale_m)))


class LastLayer(nn.Module):
    def __init__(self, width: int, mels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, mels)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        out: Tensor = self.linear(_modulated(x, *modulation))
        return out


class TimeEmbedder(nn.Module):
    """float32 times ``[steps]`` in 0..1 to ``[steps, width]``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(_TIME_WIDTH, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, times: Tensor) -> Tensor:
        half = _TIME_WIDTH // 2
        rates = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half)
        angles = times.float()[:, None] * _TIME_SCALE * rates.to(times.device)
        out: Tensor = self.mlp(torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1))
        return out


class DiT(nn.Module):
    """``[batch, frames, 4 * mels]`` (noisy mel, frames of the encoder, speaker, prompt mel) to a
    velocity."""

    def __init__(self, config: EstimatorConfig, mels: int) -> None:
        super().__init__()
        self.t_embedder = TimeEmbedder(config.width)
        self.in_proj = nn.Linear(4 * mels, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        # The same again, for those who ask what they are.
        self._blocks = [cast(Block, block) for block in self.blocks]
        self.final_layer = LastLayer(config.width, mels)
        self._run: Callable[[Block, Tensor, Tensor, AttendingMemory], Tensor] = Block.forward

    def modulations(self, times: Tensor) -> list[Modulation]:
        """What each time step does; the same for every stream, so computed once. In the weights' precision:
        call before they are halved, since half precision does not hold the angles."""
        embedded = self.t_embedder(times)
        blocks = torch.stack(
            [block.adaLN_modulation(embedded).unflatten(1, (9, -1)) for block in self._blocks], 1
        )
        blocks[:, :, 1::3] += 1
        last = self.final_layer.adaLN_modulation(embedded).unflatten(1, (2, -1))
        last[:, 1] += 1
        return [Modulation(*step) for step in zip(blocks, last, strict=True)]

    def fuse(self) -> None:
        """Join weights that are used together, and drop those that ``modulations`` alone needs."""
        for block in self._blocks:
            block.attn.fuse()
            block.conv.fuse()
            del block.adaLN_modulation
        del self.final_layer.adaLN_modulation, self.t_embedder

    def compile_blocks(self) -> None:
        """Let ``torch.compile`` join what stands between the products of a block. Call after ``fuse``."""
        self._run = torch.compile(Block.forward, dynamic=True)

    def forward(self, x: Tensor, modulation: Modulation, memory: Memory[AttendingMemory]) -> Tensor:
        x = self.in_proj(x)
        for index, block in enumerate(self._blocks):
            x = self._run(block, x, modulation.blocks[index], memory.of(index))
        out: Tensor = self.final_layer(x, modulation.last)
        return out


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(shift, functional.layer_norm(x, x.shape[-1:], eps=1e-6), scale)
