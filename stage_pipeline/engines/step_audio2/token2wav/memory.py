"""What a layer remembers of the frames before: nothing, or a stream's caches. One protocol for both."""

from __future__ import annotations

from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional


class LayerMemory(Protocol):
    """Read and written by one layer of a network, in one pass over ``frames`` new positions.

    ``mask`` is ``[batch, 1, 1, keys]``, added to the scores of the keys that ``keys`` returns: 0, or minus
    infinity for those that may not be attended to.
    """

    @property
    def mask(self) -> Tensor | None: ...

    def keys(self, keys_values: Tensor) -> Tensor:
        """Take ``[batch, frames, 2, heads, head width]`` new keys and values; give all there are,
        ``[batch, keys, 2, heads, head width]``."""
        ...

    def before(self, place: int, frames: Tensor, count: int) -> Tensor:
        """Put the ``count`` positions before ``frames`` ``[batch, frames, channels]`` in front of it:
        what a causal convolution sees. ``place`` numbers the convolutions of a layer."""
        ...


class AttendingMemory(Protocol):
    """As ``LayerMemory``, of layers whose scores are of contents alone."""

    def attend(self, query: Tensor, keys_values: Tensor) -> Tensor:
        """Take new keys and values as ``LayerMemory.keys`` does, and let each of the queries
        ``[batch, frames, heads, head width]`` attend to all there are. As ``query``."""
        ...

    def before(self, place: int, frames: Tensor, count: int) -> Tensor:
        """As ``LayerMemory.before``."""
        ...


OfLayer = TypeVar("OfLayer", covariant=True)


class Memory(Protocol[OfLayer]):
    """That of all layers of one network."""

    def of(self, layer: int) -> OfLayer: ...


def attended(query: Tensor, keys_values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of ``query`` to ``keys_values``, in the shapes of ``AttendingMemory.attend``."""
    keys, values = keys_values.permute(2, 0, 3, 1, 4)
    return functional.scaled_dot_product_attention(
        query.transpose(1, 2), keys, values, attn_mask=mask
    ).transpose(1, 2)


def added(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of those that are ``allowed``."""
    zeros = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return zeros.masked_fill(~allowed, float("-inf"))


class Blank:
    """No memory: a whole utterance at once."""

    def __init__(self, mask: Tensor | None = None) -> None:
        self.mask = mask

    def of(self, layer: int) -> Blank:
        return self

    def keys(self, keys_values: Tensor) -> Tensor:
        return keys_values

    def attend(self, query: Tensor, keys_values: Tensor) -> Tensor:
        return attended(query, keys_values, self.mask)

    def before(self, place: int, frames: Tensor, count: int) -> Tensor:
        return functional.pad(frames, (0, 0, count, 0))


class Recorder:
    """No memory, but it keeps what a stream's caches begin with: used once for each voice's prompt."""

    def __init__(self) -> None:
        self._layers: dict[int, RecordedLayer] = {}

    def of(self, layer: int) -> RecordedLayer:
        return self._layers.setdefault(layer, RecordedLayer())

    def all_keys(self) -> Tensor:
        """``[layers, batch, frames, 2, heads, head width]``."""
        return torch.stack([self._layers[layer].seen_keys for layer in sorted(self._layers)])

    def all_ends(self) -> Tensor:
        """``[layers, places, batch, frames, channels]``."""
        layers = [self._layers[layer].ends for layer in sorted(self._layers)]
        return torch.stack([torch.stack([ends[place] for place in sorted(ends)]) for ends in layers])


class RecordedLayer:
    """``seen_keys`` and ``ends[place]`` hold what was seen."""

    seen_keys: Tensor

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self.ends: dict[int, Tensor] = {}

    def keys(self, keys_values: Tensor) -> Tensor:
        self.seen_keys = keys_values
        return keys_values

    def attend(self, query: Tensor, keys_values: Tensor) -> Tensor:
        return attended(query, self.keys(keys_values), self.mask)

    def before(self, place: int, frames: Tensor, count: int) -> Tensor:
        extended = functional.pad(frames, (0, 0, count, 0))
        self.ends[place] = extended[:, -count:]
        return extended
