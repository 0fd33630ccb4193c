"""What a layer remembers of the frames before: nothing, or a stream's caches. One protocol for both."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Memory(Protocol):
    """Read and written by the layers of one network, in one pass over ``frames`` new positions.

    ``mask`` is ``[batch, 1, 1, keys]``, added to the scores of the keys that ``keys`` returns: 0, or minus
    infinity for those that may not be attended to.
    """

    @property
    def mask(self) -> Tensor | None: ...

    def keys(self, layer: int, keys_values: Tensor) -> Tensor:
        """Take ``[batch, frames, 2, heads, head width]`` new keys and values; give all there are,
        ``[batch, keys, 2, heads, head width]``."""
        ...

    def before(self, layer: int, place: int, frames: Tensor, count: int) -> Tensor:
        """Put the ``count`` positions before ``frames`` ``[batch, frames, channels]`` in front of it:
        what a causal convolution sees. ``place`` numbers the convolutions of a layer."""
        ...


def added(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of those that are ``allowed``."""
    zeros = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return zeros.masked_fill(~allowed, float("-inf"))


class Blank:
    """No memory: a whole utterance at once."""

    def __init__(self, mask: Tensor | None = None) -> None:
        self.mask = mask

    def keys(self, layer: int, keys_values: Tensor) -> Tensor:
        return keys_values

    def before(self, layer: int, place: int, frames: Tensor, count: int) -> Tensor:
        return functional.pad(frames, (0, 0, count, 0))


class Recorder:
    """No memory, but it keeps what a stream's caches begin with: used once for each voice's prompt.

    ``recorded_keys[layer]`` and ``recorded_ends[layer, place]`` hold what was seen.
    """

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self.recorded_keys: dict[int, Tensor] = {}
        self.recorded_ends: dict[tuple[int, int], Tensor] = {}

    def keys(self, layer: int, keys_values: Tensor) -> Tensor:
        self.recorded_keys[layer] = keys_values
        return keys_values

    def before(self, layer: int, place: int, frames: Tensor, count: int) -> Tensor:
        extended = functional.pad(frames, (0, 0, count, 0))
        self.recorded_ends[layer, place] = extended[:, -count:]
        return extended

    def all_keys(self) -> Tensor:
        """``[layers, batch, frames, 2, heads, head width]``."""
        return torch.stack([self.recorded_keys[layer] for layer in sorted(self.recorded_keys)])

    def all_ends(self) -> Tensor:
        """``[layers, places, batch, frames, channels]``."""
        layers = sorted({layer for layer, _ in self.recorded_ends})
        places = sorted({place for _, place in self.recorded_ends})
        return torch.stack(
            [torch.stack([self.recorded_ends[layer, place] for place in places]) for layer in layers]
        )
