"""Attention over keys that stay where they are: each stream's slot of a pool, instead of copies of it.

A kernel for GPUs, since gathering the slots costs as much as attending to them. Keys in any order, softmax
in one pass (Milakov & Gimelshein, 2018).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# The fastest of those tried on an H200 for 64 items; for one it makes no difference.
_QUERIES = 64
_KEYS = 32


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _attend(
    query: tl.tensor,
    pool: tl.tensor,
    lanes: tl.tensor,
    mask: tl.tensor,
    out: tl.tensor,
    frames: int,
    keys: int,
    heads: tl.constexpr,
    width: tl.constexpr,
    queries: tl.constexpr,
    block: tl.constexpr,
) -> None:
    # The logarithm of e in base 2, since powers of two are cheaper.
    scale: tl.constexpr = 1.4426950408889634 * width**-0.5
    item, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * queries + tl.arange(0, queries)
    channel = tl.arange(0, width)
    place = ((item * frames + row[:, None]) * heads + head) * width + channel[None, :]
    asked = tl.load(query + place, mask=row[:, None] < frames, other=0.0)
    slot = pool + tl.load(lanes + item) * keys * (2 * heads * width) + head * width
    # Not minus infinity: keys that are masked out before the first that is not must not make it NaN.
    most = tl.full([queries], -1e30, tl.float32)
    total = tl.zeros([queries], tl.float32)
    sums = tl.zeros([queries, width], tl.float32)
    for start in range(0, keys, block):
        key = start + tl.arange(0, block)
        there = key < keys
        found = tl.load(
            slot + key[None, :] * (2 * heads * width) + channel[:, None], mask=there[None, :], other=0.0
        )
        added = tl.load(mask + item * keys + key, mask=there, other=float("-inf")).to(tl.float32)
        scores = tl.dot(asked, found, input_precision="ieee") * scale + added[None, :]
        highest = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - highest[:, None])
        kept = tl.exp2(most - highest)
        values = tl.load(
            slot + heads * width + key[:, None] * (2 * heads * width) + channel[None, :],
            mask=there[:, None],
            other=0.0,
        )
        sums = sums * kept[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total = total * kept + tl.sum(weights, 1)
        most = highest
    tl.store(out + place, (sums / total[:, None]).to(out.dtype.element_ty), mask=row[:, None] < frames)


def slot_attention(query: Tensor, pool: Tensor, lanes: Tensor, mask: Tensor) -> Tensor:
    """``query`` ``[batch, frames, heads, head width]``, ``pool`` ``[lanes, keys, 2, heads, head width]``,
    ``lanes`` int64 ``[batch]``, ``mask`` ``[batch, 1, 1, keys]`` as of a layer's memory. As ``query``."""
    batch, frames, heads, width = query.shape
    query = query.contiguous()
    out = torch.empty_like(query)
    grid = (-(-frames // _QUERIES), batch * heads)
    _attend[grid](
        query,
        pool,
        lanes,
        mask,
        out,
        frames,
        pool.shape[1],
        heads=heads,
        width=width,
        queries=_QUERIES,
        block=_KEYS,
    )
    return out
