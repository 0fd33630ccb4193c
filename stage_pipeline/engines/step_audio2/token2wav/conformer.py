"""Conformer layers with relative positions: self-attention and a feed-forward, both with the norm before.

Attention after Transformer-XL (Dai et al., 2019): a query at position i scores a key at j with
``(q + u)·k + (q + v)·P(i - j)``, P being a projected sinusoid of the distance. Names are the checkpoint's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.memory import LayerMemory

# Queries at a time, so that a whole utterance needs memory for a strip of the score matrix only.
_STRIP = 512


def sinusoids(farthest: int, nearest: int, width: int) -> Tensor:
    """float32 ``[farthest - nearest + 1, width]``: encodings of the distances ``farthest`` down to
    ``nearest``.

    Distances are of the query from the key, so keys that come later have negative ones.
    """
    distances = torch.arange(farthest, nearest - 1, -1, dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * -(math.log(10000.0) / width))
    angles = distances * rates
    return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(1)


class RelativeAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self.linear_out = nn.Linear(width, width)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, self.head_width))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, self.head_width))

    def distances(self, encodings: Tensor) -> Tensor:
        """Project ``[distances, width]`` encodings to ``[heads, distances, head width]``."""
        projected: Tensor = self.linear_pos(encodings)
        return projected.view(-1, self.heads, self.head_width).transpose(0, 1)

    def forward(self, x: Tensor, distances: Tensor, memory: LayerMemory) -> Tensor:
        """``x`` ``[batch, frames, width]``; ``distances`` from ``keys - 1`` down to ``1 - frames``: the
        last of the keys are those of ``x``."""
        batch, frames, width = x.shape
        split = (batch, frames, self.heads, self.head_width)
        query = self.linear_q(x).view(split)
        new = torch.stack([self.linear_k(x).view(split), self.linear_v(x).view(split)], dim=2)
        keys, values = memory.keys(new).permute(2, 0, 3, 1, 4)
        by_content = (query + self.pos_bias_u).transpose(1, 2)
        by_distance = (query + self.pos_bias_v).transpose(1, 2) / math.sqrt(self.head_width)
        strips = []
        for start in range(0, frames, _STRIP):
            size = min(_STRIP, frames - start)
            near = distances.narrow(1, frames - start - size, keys.shape[2] + size - 1)
            bias = _shifted(by_distance[:, :, start : start + size] @ near.transpose(1, 2), keys.shape[2])
            if memory.mask is not None:
                bias = bias + memory.mask
            strips.append(
                functional.scaled_dot_product_attention(
                    by_content[:, :, start : start + size], keys, values, attn_mask=bias
                )
            )
        attended = torch.cat(strips, dim=2).transpose(1, 2).reshape(batch, frames, width)
        out: Tensor = self.linear_out(attended)
        return out


def _shifted(scores: Tensor, keys: int) -> Tensor:
    """``[batch, heads, queries, keys + queries - 1]`` scores by distance to ``[batch, heads, queries,
    keys]``.

    Query i of n finds key j in column ``n - 1 - i + j``: each row begins one column before the row above.
    """
    scores = scores.contiguous()
    batch, heads, queries, columns = scores.shape
    return scores.as_strided(
        (batch, heads, queries, keys),
        (scores.stride(0), scores.stride(1), columns - 1, 1),
        scores.storage_offset() + queries - 1,
    )


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, inner)
        self.w_2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(functional.silu(self.w_1(x)))
        return out


class ConformerLayer(nn.Module):
    """``[batch, frames, width]`` to the same."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(width, heads)
        self.feed_forward = FeedForward(width, inner)
        self.norm_ff = nn.LayerNorm(width, eps=1e-12)
        self.norm_mha = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, distances: Tensor, memory: LayerMemory) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), distances, memory)
        x = x + self.feed_forward(self.norm_ff(x))
        return x
