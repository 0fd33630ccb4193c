"""The Thinker's ears: a Whisper-like encoder, halved in time, and an adaptor that halves again.

Module names are those of the checkpoint. Runs in float32, bfloat16 and float16. The maths is Whisper's
(Radford et al., 2022) with Step-Audio2's way of masking, which depends on how long a request's mels are
once padded to one length; so requests are never padded to each other's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.thinker.audio_pieces import heard_frames, patches

ADAPTER_HIDDEN = 2048
"""Of every released model; no config says it."""

# What a batch of full pieces needs beside the weights: some 60 MB a piece at the real sizes in bfloat16.
_LARGEST_BATCH = 8


@dataclass(frozen=True, slots=True)
class TowerSize:
    """``audio_encoder_config`` of config.json, as far as it matters."""

    mels: int
    context: int
    width: int
    heads: int
    layers: int
    output: int
    adapter_kernel: int
    adapter_stride: int
    adapter_hidden: int = ADAPTER_HIDDEN


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """``x`` ``[batch, time, width]``, ``seen`` bool ``[batch, 1, 1, time]``."""
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.out(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn_ln = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp_ln = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        x = x + self.attn(self.attn_ln(x), seen)
        return x + self.mlp(self.mlp_ln(x))


class Encoder(nn.Module):
    def __init__(self, size: TowerSize) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(size.mels, size.width, 3, padding=1)
        self.conv2 = nn.Conv1d(size.width, size.width, 3, stride=2, padding=1)
        self.positional_embedding = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.after_norm = nn.LayerNorm(size.width)

    def forward(self, mels: Tensor, frames: Tensor) -> Tensor:
        """``mels`` ``[batch, mels, padded]`` whose first ``frames`` ``[batch]`` frames are heard, to
        ``[batch, ceil(padded / 2) // 2, width]``."""
        x = functional.gelu(self.conv1(mels))
        x = functional.gelu(self.conv2(x)).transpose(1, 2)
        x = x + self.positional_embedding.weight[: x.shape[1]]
        # A position is seen if the second of its two mel frames is, or the first where the count is odd.
        padded = mels.shape[2]
        at = torch.arange((padded + 1) % 2, padded, 2, device=mels.device)
        seen = (at < frames[:, None])[:, None, None]
        for block in self.blocks:
            x = block(x, seen)
        return self.after_norm(functional.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2))


class Adapter(nn.Module):
    def __init__(self, size: TowerSize) -> None:
        super().__init__()
        self.conv = nn.Conv1d(size.width, size.width, size.adapter_kernel, size.adapter_stride, padding=1)
        self.linear1 = nn.Linear(size.width, size.adapter_hidden)
        self.linear2 = nn.Linear(size.adapter_hidden, size.output)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.linear2(functional.relu(self.linear1(x)))


def hear(
    encoder: Encoder, adapter: Adapter, requests: Sequence[tuple[Tensor, Sequence[int]]]
) -> list[Tensor]:
    """For each request, given as its pieces' mels ``[pieces, mels, padded]`` and their frames: the
    embeddings of its patches, piece after piece, ``[patches, output]``.

    Requests of one padded length go through together, others apart: so none of them changes another.
    """
    by_length: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for request, (mels, frames) in enumerate(requests):
        for piece in range(len(frames)):
            if patches(frames[piece]):
                by_length[mels.shape[2]].append((request, piece))
    weight = adapter.linear2.weight
    heard: dict[tuple[int, int], Tensor] = {}
    for where in by_length.values():
        for first in range(0, len(where), _LARGEST_BATCH):
            batch = where[first : first + _LARGEST_BATCH]
            mels = torch.stack([requests[request][0][piece] for request, piece in batch])
            counts = [requests[request][1][piece] for request, piece in batch]
            seen = torch.tensor([heard_frames(count) for count in counts], device=weight.device)
            output = adapter(encoder(mels.to(weight.device, weight.dtype), seen))
            for at, count, row in zip(batch, counts, output, strict=True):
                heard[at] = row[: patches(count)]
    nothing = weight.new_zeros(0, weight.shape[0])
    return [
        torch.cat([heard.get((request, piece), nothing) for piece in range(len(frames))] or [nothing])
        for request, (_, frames) in enumerate(requests)
    ]
