"""The caches of all streams, allocated once: a stream owns one slot of each.

What the official implementation attends to in a window, and what is kept here:

- DiT: the newest ``kept`` frames (as many as the prompt has), and the prompt's last 100 for good. The
  newest stand in a ring: a window goes in front of its newest frames and overwrites those that fell out, so
  nothing is ever moved. Order is free, since the DiT has no positions.
- Conformer: everything since the prompt's start, in order. Past ``LONGEST_TOKENS`` (100 s, where the
  official position table ends and it fails) the oldest speech is forgotten, so cost and memory stay
  bounded.
- Convolutions: the last few frames. Vocoder: the last 8 mel frames, 3840 samples of source and of speech.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stage_pipeline.engines.step_audio2.token2wav.dit import CONVOLUTION_CONTEXT, CONVOLUTIONS
from stage_pipeline.engines.step_audio2.token2wav.flow import FRAMES_PER_TOKEN, VoiceCaches
from stage_pipeline.engines.step_audio2.token2wav.flow_config import FlowConfig
from stage_pipeline.engines.step_audio2.token2wav.flow_encoder import (
    LOOKAHEAD_CONTEXT,
    POSITIONS,
    UPSAMPLE_CONTEXT,
)

ANCHOR_FRAMES = 100
"""The end of the prompt, which the DiT never forgets."""
LAST_WINDOW_TOKENS = 27
"""The longest last window: one less would have been a whole window and its lookahead."""
LAST_WINDOW_FRAMES = LAST_WINDOW_TOKENS * FRAMES_PER_TOKEN
WHOLE_WINDOW_TOKENS = 25
LONGEST_TOKENS = 2500
MEL_OVERLAP = 8
WAVE_OVERLAP = 3840

# Forgotten at once when the conformer's cache is full: seldom, since it moves the rest.
_FORGOTTEN_TOKENS = 500
# As above, of the DiT's keys.
_ROUND = 16


@dataclass(slots=True)
class StreamState:
    """Where one stream stands. ``head``: place of the newest frame in a ring of ``ring`` frames;
    ``tokens``: how many the conformer's cache holds; ``frames``: how many the DiT has seen since the
    prompt."""

    slot: int
    prompt_frames: int
    kept: int
    tokens: int
    head: int = 0
    frames: int = 0
    windows: int = 0

    @property
    def ring(self) -> int:
        return self.kept + LAST_WINDOW_FRAMES

    @property
    def remembered(self) -> int:
        """Frames in the ring before the next window."""
        return min(self.kept, self.prompt_frames + self.frames)

    @property
    def anchored(self) -> int:
        """How many of the prompt's last frames have left the ring, of those that are kept for good."""
        in_ring = max(0, min(self.prompt_frames, self.kept - self.frames))
        return min(ANCHOR_FRAMES, self.prompt_frames - in_ring)

    def advance(self, tokens: int) -> None:
        frames = tokens * FRAMES_PER_TOKEN
        self.head = (self.head - frames) % self.ring
        self.frames += frames
        self.tokens += tokens
        self.windows += 1


class StreamSlots:
    """``streams`` slots, and one more that nobody reads, for the rows that fill up a batch.

    ``longest_kept``: the most frames any stream keeps in its ring, the longest prompt's length.
    """

    def __init__(
        self,
        config: FlowConfig,
        steps: int,
        streams: int,
        longest_kept: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.idle = streams
        self.longest_kept = longest_kept
        self._free = list(reversed(range(streams)))
        encoder, estimator = config.encoder, config.estimator
        slots = streams + 1

        def zeros(*shape: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        head = (2, encoder.heads, encoder.width // encoder.heads)
        self.token_keys = zeros(encoder.token_layers, slots, POSITIONS, *head)
        self.frame_keys = zeros(encoder.frame_layers, slots, POSITIONS * FRAMES_PER_TOKEN, *head)
        self.lookahead_ends = zeros(slots, LOOKAHEAD_CONTEXT, encoder.width)
        self.upsample_ends = zeros(slots, UPSAMPLE_CONTEXT, encoder.width)
        # Guidance runs each stream twice: the second half of the lanes is the unconditional one.
        keys = ANCHOR_FRAMES + longest_kept + LAST_WINDOW_FRAMES
        keys += -keys % _ROUND
        self.lanes = slots
        self.step_keys = zeros(
            steps, estimator.layers, 2 * slots, keys, 2, estimator.heads, estimator.head_width
        )
        self.step_ends = zeros(
            steps, estimator.layers, CONVOLUTIONS, 2 * slots, CONVOLUTION_CONTEXT, estimator.width
        )
        self.speakers = zeros(slots, config.mels, kind=torch.float32)
        self.mel_tails = zeros(slots, MEL_OVERLAP, config.mels, kind=torch.float32)
        self.source_tails = zeros(slots, WAVE_OVERLAP, kind=torch.float32)
        self.speech_tails = zeros(slots, WAVE_OVERLAP, kind=torch.float32)

    def take(self, caches: VoiceCaches, kept: int | None = None) -> StreamState | None:
        """Start a stream of a voice; None while all slots are taken. ``kept`` is the prompt's length unless
        a test says otherwise."""
        if not self._free:
            return None
        prompt = caches.features.frames
        state = StreamState(
            self._free.pop(), prompt, prompt if kept is None else kept, prompt // FRAMES_PER_TOKEN
        )
        slot, anchor = state.slot, min(ANCHOR_FRAMES, prompt)
        self.token_keys[:, slot, : state.tokens] = caches.token_keys
        self.frame_keys[:, slot, :prompt] = caches.frame_keys
        self.lookahead_ends[slot] = caches.lookahead_ends
        self.upsample_ends[slot] = caches.upsample_ends
        for half, lane in enumerate((slot, slot + self.lanes)):
            keys = caches.step_keys[:, :, half]
            self.step_keys[:, :, lane, ANCHOR_FRAMES - anchor : ANCHOR_FRAMES] = keys[:, :, -anchor:]
            self.step_keys[:, :, lane, ANCHOR_FRAMES : ANCHOR_FRAMES + prompt] = keys
            self.step_ends[:, :, :, lane] = caches.step_ends[:, :, :, half]
        self.speakers[slot] = caches.speaker
        return state

    @property
    def free(self) -> int:
        return len(self._free)

    def give_back(self, state: StreamState) -> None:
        self._free.append(state.slot)

    def make_room(self, state: StreamState, tokens: int) -> None:
        """Forget the oldest speech in the conformer's cache when ``tokens`` more would not fit."""
        if state.tokens + tokens <= LONGEST_TOKENS:
            return
        prompt = state.prompt_frames // FRAMES_PER_TOKEN
        for keys, rate in ((self.token_keys, 1), (self.frame_keys, FRAMES_PER_TOKEN)):
            start, gone, stop = prompt * rate, _FORGOTTEN_TOKENS * rate, state.tokens * rate
            keys[:, state.slot, start : stop - gone] = keys[:, state.slot, start + gone : stop].clone()
        state.tokens -= _FORGOTTEN_TOKENS
