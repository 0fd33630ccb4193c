"""From audio tokens to frames: a conformer at 25 Hz, upsampling by two, a conformer at 50 Hz."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.conformer import ConformerLayer, sinusoids
from stage_pipeline.engines.step_audio2.token2wav.flow_config import EncoderConfig
from stage_pipeline.engines.step_audio2.token2wav.memory import LayerMemory, Memory

LOOKAHEAD_CONTEXT = 2
UPSAMPLE_CONTEXT = 4
POSITIONS = 2528
"""Tokens that the tables of distances reach: 100 s and a last window, a multiple of 16 as attention kernels
like it."""
# Places of these two convolutions in the memory of the layers that follow them.
_CONVOLUTION = 0


@dataclass(frozen=True, slots=True)
class Distances:
    """What each layer makes of the distances of queries from ``keys`` tokens, and from twice as many
    frames."""

    of_tokens: list[Tensor]
    of_frames: list[Tensor]
    keys: int

    def nearer(self, keys: int, queries: int) -> Distances:
        """Cut down to what ``queries`` tokens need after which ``keys`` are there."""

        def cut(tables: list[Tensor], rate: int) -> list[Tensor]:
            start, length = (self.keys - keys) * rate, (keys + queries) * rate - 1
            return [table.narrow(1, start, length) for table in tables]

        return Distances(cut(self.of_tokens, 1), cut(self.of_frames, 2), keys)


class Embed(nn.Module):
    """A projection, a norm, and the factor that relative positions want in front of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, eps=1e-5))
        self.factor = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(x)
        return out * self.factor


class Lookahead(nn.Module):
    """Lets each token see the ``lookahead`` tokens after it; ``[batch, n + lookahead, width]`` to n."""

    def __init__(self, width: int, lookahead: int) -> None:
        super().__init__()
        self.lookahead = lookahead
        self.conv1 = nn.Conv1d(width, width, lookahead + 1)
        self.conv2 = nn.Conv1d(width, width, LOOKAHEAD_CONTEXT + 1)

    def forward(self, x: Tensor, memory: LayerMemory) -> Tensor:
        ahead = functional.leaky_relu(self.conv1(x.transpose(1, 2))).transpose(1, 2)
        ahead = memory.before(_CONVOLUTION, ahead, LOOKAHEAD_CONTEXT)
        seen: Tensor = self.conv2(ahead.transpose(1, 2)).transpose(1, 2)
        return seen + x[:, : seen.shape[1]]


class Upsample(nn.Module):
    """Each token twice, then a causal convolution; ``[batch, n, width]`` to ``2n``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, UPSAMPLE_CONTEXT + 1)

    def forward(self, x: Tensor, memory: LayerMemory) -> Tensor:
        doubled = memory.before(_CONVOLUTION, x.repeat_interleave(2, dim=1), UPSAMPLE_CONTEXT)
        out: Tensor = self.conv(doubled.transpose(1, 2)).transpose(1, 2)
        return out


class FlowEncoder(nn.Module):
    """Token embeddings ``[batch, n + lookahead, width]`` to frames ``[batch, 2n, width]``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.width
        self.width = width

        def layers(count: int) -> nn.ModuleList:
            return nn.ModuleList(
                ConformerLayer(width, config.heads, config.feed_forward) for _ in range(count)
            )

        self.embed = Embed(width)
        self.pre_lookahead_layer = Lookahead(width, config.lookahead)
        self.encoders = layers(config.token_layers)
        self.up_layer = Upsample(width)
        self.up_embed = Embed(width)
        self.up_encoders = layers(config.frame_layers)
        self.after_norm = nn.LayerNorm(width, eps=1e-5)

    def forward(
        self,
        embeddings: Tensor,
        present: Tensor,
        distances: Distances,
        tokens: Memory[LayerMemory],
        frames: Memory[LayerMemory],
    ) -> Tensor:
        """``present`` bool ``[batch, n + lookahead]``: tokens that are there; the others are no lookahead.
        ``distances`` for their number of keys and queries; ``tokens``, ``frames``: memory of the two
        conformers."""
        x = self.embed(embeddings).masked_fill(~present[:, :, None], 0)
        x = self.pre_lookahead_layer(x, tokens.of(0))
        for index, (layer, table) in enumerate(zip(self.encoders, distances.of_tokens, strict=True)):
            x = layer(x, table, tokens.of(index))
        x = self.up_embed(self.up_layer(x, frames.of(0)))
        for index, (layer, table) in enumerate(zip(self.up_encoders, distances.of_frames, strict=True)):
            x = layer(x, table, frames.of(index))
        out: Tensor = self.after_norm(x)
        return out

    def distances(self, keys: int, queries: int) -> Distances:
        """The tables for ``queries`` tokens after which ``keys`` are there."""
        parameter = self.after_norm.weight

        def tables(layers: nn.ModuleList, keys: int, queries: int) -> list[Tensor]:
            encodings = sinusoids(keys - 1, 1 - queries, self.width).to(parameter)
            return [cast(ConformerLayer, layer).self_attn.distances(encodings) for layer in layers]

        return Distances(
            tables(self.encoders, keys, queries), tables(self.up_encoders, 2 * keys, 2 * queries), keys
        )


def doubled_mask(mask: Tensor | None) -> Tensor | None:
    """A mask over tokens to one over frames, along its last axis."""
    return None if mask is None else torch.repeat_interleave(mask, 2, dim=-1)
