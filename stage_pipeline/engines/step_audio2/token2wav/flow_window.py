"""One window of many streams through the flow, each at its own place: fixed shapes, and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stage_pipeline.engines.step_audio2.token2wav.flow import FRAMES_PER_TOKEN, Flow
from stage_pipeline.engines.step_audio2.token2wav.flow_encoder import POSITIONS
from stage_pipeline.engines.step_audio2.token2wav.memory import added, attended
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import (
    ANCHOR_FRAMES,
    LAST_WINDOW_TOKENS,
    WHOLE_WINDOW_TOKENS,
    StreamSlots,
    StreamState,
)

if torch.version.cuda:
    # Triton comes with torch's builds for GPUs, and with no other.
    from stage_pipeline.engines.step_audio2.token2wav.slot_attention import slot_attention

KEY_COUNTS = (256, 512, 1024, POSITIONS)
"""Conformer keys that a pass attends to, in tokens (10, 20, 40, 100 s): few shapes, little waste."""

_PLACE = 9


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of one stream, lookahead included, and how many of them are voiced now."""

    state: StreamState
    tokens: Sequence[int]
    voiced: int


@dataclass(frozen=True, slots=True)
class WindowShape:
    """What is fixed in one pass: tokens voiced by each row, and conformer keys."""

    tokens: int
    keys: int


class FlowWindows:
    """Runs windows over the slots of ``StreamSlots``."""

    def __init__(self, flow: Flow, slots: StreamSlots) -> None:
        self._flow = flow
        self._slots = slots
        self._lookahead = flow.config.encoder.lookahead

    def shape(self, windows: Sequence[Window]) -> WindowShape:
        """The smallest shape that all of ``windows`` fit in; makes room in their caches first."""
        whole = all(window.voiced == WHOLE_WINDOW_TOKENS for window in windows)
        tokens = WHOLE_WINDOW_TOKENS if whole else LAST_WINDOW_TOKENS
        for window in windows:
            self._slots.make_room(window.state, window.voiced)
        keys = max(window.state.tokens for window in windows) + tokens
        return WindowShape(tokens, next(count for count in KEY_COUNTS if count >= keys))

    def pack(self, windows: Sequence[Window], shape: WindowShape, rows: int) -> Tensor:
        """int64 ``[rows, …]`` on the host: each window's place and tokens; rows too many stand on the
        idle slot."""
        # One token, so that there is something to attend to.
        idle = [self._slots.idle, 1, 1, 0, 0, ANCHOR_FRAMES, 0, 0, 0]
        filled = [_place(window) + list(window.tokens) for window in windows]
        filled += [idle] * (rows - len(windows))
        width = _PLACE + shape.tokens + self._lookahead
        return torch.tensor([row + [0] * (width - len(row)) for row in filled])

    def encode(self, packed: Tensor, shape: WindowShape) -> Tensor:
        """``pack``'s rows, on the device, to the encoder's frames, float32 ``[rows, 2 * tokens, mels]``.
        Like ``solve`` it writes to the slots; the caller advances the states after both."""
        flow, slots = self._flow, self._slots
        slot, count, voiced, before = packed[:, :4].unbind(1)
        ids = packed[:, _PLACE:]
        present = torch.arange(ids.shape[1], device=packed.device) < count[:, None]
        tokens = _Line(slots.token_keys, slots.lookahead_ends, slot, before, voiced, shape, 1)
        frames = _Line(slots.frame_keys, slots.upsample_ends, slot, before, voiced, shape, FRAMES_PER_TOKEN)
        embeddings = flow.weights.input_embedding(ids)
        return flow.project(
            flow.weights.encoder(
                embeddings, present, flow.distances.nearer(shape.keys, shape.tokens), tokens, frames
            )
        )

    def solve(self, packed: Tensor, frames: Tensor) -> Tensor:
        """``pack``'s rows and ``encode``'s frames to the mel, float32 ``[rows, frames, mels]``."""
        column = packed[:, _PLACE - 1, None] + torch.arange(frames.shape[1], device=packed.device)
        speaker = self._slots.speakers[packed[:, 0]]
        ring = _Ring(self._slots, packed, frames.shape[1])
        return self._flow.solver.solve(
            self._flow.noise[column], frames, speaker, torch.zeros_like(frames), ring.at_step
        )


def _place(window: Window) -> list[int]:
    state = window.state
    return [
        state.slot,
        len(window.tokens),
        window.voiced,
        state.tokens,
        state.head,
        state.ring,
        state.remembered,
        state.anchored,
        state.remembered + state.anchored,
    ]


class _Line:
    """Memory of the conformer: keys in the order of time. All rows are aligned at their ends, so that one
    table of distances serves them."""

    def __init__(
        self,
        keys: Tensor,
        ends: Tensor,
        slot: Tensor,
        before: Tensor,
        voiced: Tensor,
        shape: WindowShape,
        rate: int,
    ) -> None:
        self.pools, self.ends = keys, ends
        self.slot = slot
        new = torch.arange(shape.tokens * rate, device=slot.device)
        start = before[:, None] * rate
        self.written = start + new
        read = start + torch.arange(
            (shape.tokens - shape.keys) * rate, shape.tokens * rate, device=slot.device
        )
        self.read = read.clamp(min=0)
        there = (read >= 0) & (read < start + voiced[:, None] * rate)
        self.mask = added(there[:, None, None], keys.dtype)
        self.voiced = voiced * rate

    def of(self, layer: int) -> _LineLayer:
        return _LineLayer(self, self.pools[layer])


class _LineLayer:
    """Memory of one layer of a conformer."""

    def __init__(self, line: _Line, pool: Tensor) -> None:
        self._line = line
        self._pool = pool
        self.mask = line.mask

    def keys(self, keys_values: Tensor) -> Tensor:
        slot = self._line.slot[:, None]
        self._pool[slot, self._line.written] = keys_values
        return self._pool[slot, self._line.read]

    def before(self, place: int, frames: Tensor, count: int) -> Tensor:
        ends, slot = self._line.ends, self._line.slot
        extended = torch.cat([ends[slot], frames], dim=1)
        ends[slot] = _last_rows(extended, self._line.voiced, count)
        return extended


class _Ring:
    """Memory of the DiT in all its steps: the anchor first, then the ring."""

    def __init__(self, slots: StreamSlots, packed: Tensor, frames: int) -> None:
        self._slots = slots
        slot, _, voiced, _, head, ring, remembered, anchored, _ = packed[:, :_PLACE].unbind(1)
        self.lanes = torch.cat([slot, slot + slots.lanes])
        voiced = voiced * FRAMES_PER_TOKEN
        device = slot.device
        voiced, ring = voiced[:, None], ring[:, None]
        newest = (head[:, None] - voiced) % ring
        new = torch.arange(frames, device=device)
        # Frames behind the window's end go where nothing is remembered: right behind the oldest.
        kept = ring - (LAST_WINDOW_TOKENS * FRAMES_PER_TOKEN)
        written = ANCHOR_FRAMES + (newest + torch.where(new < voiced, new, new + kept)) % ring
        place = torch.arange(slots.step_keys.shape[3], device=device)
        age = (place - ANCHOR_FRAMES - newest) % ring
        in_ring = (place >= ANCHOR_FRAMES) & (place < ANCHOR_FRAMES + ring)
        mask = (in_ring & (age < voiced + remembered[:, None])) | (
            (place < ANCHOR_FRAMES) & (place >= ANCHOR_FRAMES - anchored[:, None])
        )
        self.written = torch.cat([written, written])
        self.mask = added(torch.cat([mask, mask])[:, None, None], slots.step_keys.dtype)
        self.voiced = torch.cat([voiced, voiced])[:, 0]

    def at_step(self, step: int) -> _RingStep:
        return _RingStep(self, self._slots.step_keys[step], self._slots.step_ends[step])


class _RingStep:
    """Memory of the DiT in one Euler step."""

    def __init__(self, ring: _Ring, keys: Tensor, ends: Tensor) -> None:
        self._ring = ring
        self._keys, self._ends = keys, ends
        # Of all layers at once: it is small, and every kernel costs a launch.
        self._before = ends.index_select(2, ring.lanes)

    def of(self, layer: int) -> _RingLayer:
        return _RingLayer(self._ring, self._keys[layer], self._ends[layer].unbind(), self._before[layer])


class _RingLayer:
    """Memory of one layer of the DiT."""

    def __init__(self, ring: _Ring, pool: Tensor, ends: Sequence[Tensor], before: Tensor) -> None:
        self._pool, self._ends, self._before = pool, ends, before
        self._lanes, self._written = ring.lanes, ring.written
        self._voiced, self._mask = ring.voiced, ring.mask

    def attend(self, query: Tensor, keys_values: Tensor) -> Tensor:
        self._pool[self._lanes[:, None], self._written] = keys_values
        if query.is_cuda:
            return slot_attention(query, self._pool, self._lanes, self._mask)
        return attended(query, self._pool.index_select(0, self._lanes), self._mask)

    def before(self, place: int, frames: Tensor, count: int) -> Tensor:
        extended = torch.cat([self._before[place], frames], dim=1)
        self._ends[place][self._lanes] = _last_rows(extended, self._voiced, count)
        return extended


def _last_rows(extended: Tensor, voiced: Tensor, count: int) -> Tensor:
    """The ``count`` rows up to each item's own end; the first ``count`` stand before its window."""
    rows = voiced[:, None] + torch.arange(count, device=extended.device)
    return extended.gather(1, rows[:, :, None].expand(-1, -1, extended.shape[2]))
