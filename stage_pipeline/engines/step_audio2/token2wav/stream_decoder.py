"""Voices windows of many streams in one pass. For one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.engines.step_audio2.token2wav.flow import FRAMES_PER_TOKEN, Flow, VoiceCaches
from stage_pipeline.engines.step_audio2.token2wav.flow_window import (
    KEY_COUNTS,
    FlowWindows,
    Window,
    WindowShape,
)
from stage_pipeline.engines.step_audio2.token2wav.harmonic_source import HOP, SINES
from stage_pipeline.engines.step_audio2.token2wav.hift import HiFT
from stage_pipeline.engines.step_audio2.token2wav.noise import Noise
from stage_pipeline.engines.step_audio2.token2wav.replays import Replays
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import (
    LAST_WINDOW_TOKENS,
    MEL_OVERLAP,
    WAVE_OVERLAP,
    StreamSlots,
    StreamState,
)
from stage_pipeline.engines.step_audio2.token2wav.vocoder_window import VocoderWindows
from stage_pipeline.stages import Float32Wave

CHUNK_POLICY = FixedWindows()


@dataclass(frozen=True, slots=True)
class StreamWindow:
    """One window of one stream: its tokens with lookahead, or its last ones (which may be none)."""

    state: StreamState
    seed: int
    tokens: Sequence[int]
    final: bool


class StreamDecoder:
    """``graphs``: replay CUDA graphs; batches are then filled up to the next power of two."""

    def __init__(
        self, flow: Flow, vocoder: HiFT, noise: Noise, streams: int, longest_kept: int, *, graphs: bool
    ) -> None:
        self._flow = flow
        self._noise = noise
        self._graphs = graphs
        self._streams = streams
        self._lookahead = flow.config.encoder.lookahead
        self.slots = StreamSlots(
            flow.config, flow.solver.steps, streams, longest_kept, flow.dtype, flow.device
        )
        self._flow_windows = FlowWindows(flow, self.slots)
        self._vocoder_windows = VocoderWindows(vocoder, self.slots)
        self._replays = Replays(flow.device, enabled=graphs)

    def begin(self, caches: VoiceCaches) -> StreamState | None:
        """A stream of the voice; None while all slots are taken."""
        return self.slots.take(caches)

    def end(self, state: StreamState) -> None:
        self.slots.give_back(state)

    def step(self, windows: Sequence[StreamWindow]) -> list[Float32Wave]:
        """Voice at most one window of each stream. A window that is not final holds back its last 3840
        samples, to fade them into the next."""
        voiced = [window for window in windows if window.tokens]
        waves = iter(self._voice(voiced) if voiced else [])
        return [next(waves) if window.tokens else self._tail(window.state) for window in windows]

    def _tail(self, state: StreamState) -> Float32Wave:
        if not state.windows:
            return torch.zeros(0).numpy()
        wave: Float32Wave = self.slots.speech_tails[state.slot].cpu().numpy()
        return wave

    def warm_up(self) -> None:
        """Run every shape there is, so that no stream waits for a graph to be captured; on a CPU, each
        once."""
        for rows in self._rows_ever():
            for tokens in (CHUNK_POLICY.size, LAST_WINDOW_TOKENS):
                mel = torch.zeros(0)
                for keys in KEY_COUNTS if self._graphs else KEY_COUNTS[:1]:
                    shape = WindowShape(tokens, keys)
                    mel = self._mel(self._flow_windows.pack([], shape, rows), shape)
                for full in {False, tokens == CHUNK_POLICY.size}:
                    places = self._nowhere(rows, mel.shape[1], full=full)
                    self._wave(mel, places, self._noise_for(mel), full=full)

    def _rows_ever(self) -> list[int]:
        most = (self._streams - 1).bit_length() if self._graphs else 0
        return [1 << power for power in range(most + 1)]

    def _voice(self, windows: Sequence[StreamWindow]) -> list[Float32Wave]:
        rows = 1 << (len(windows) - 1).bit_length() if self._graphs else len(windows)
        in_flow = [self._in_flow(window) for window in windows]
        shape = self._flow_windows.shape(in_flow)
        # Only of windows that are not the last: of these alone every number of rows is warmed up.
        full = shape.tokens == CHUNK_POLICY.size and all(
            window.state.windows and window.voiced == shape.tokens for window in in_flow
        )
        real = torch.tensor(
            [[at.state.slot, int(not at.state.windows), FRAMES_PER_TOKEN * at.voiced] for at in in_flow]
        )
        idle = self._nowhere(rows - len(windows), FRAMES_PER_TOKEN * shape.tokens, full=full)
        # Uploaded before the GPU has work: later, each of them would wait for it.
        places = torch.cat([real, idle]).to(self._flow.device)
        packed = self._flow_windows.pack(in_flow, shape, rows).to(self._flow.device)
        mel = self._mel(packed, shape)
        noise = self._noise_for(mel)
        for row, window, flow_window in zip(noise, windows, in_flow, strict=False):
            self._noise.harmonics(window.seed, window.state.windows, row[: self._frames(flow_window) * HOP])
        rows_of_samples = self._wave(mel, places, noise, full=full).cpu().numpy()
        waves = []
        for samples, window, flow_window in zip(rows_of_samples, windows, in_flow, strict=False):
            end = self._frames(flow_window) * HOP
            waves.append(samples[: end if window.final else end - WAVE_OVERLAP].copy())
            window.state.advance(flow_window.voiced)
        return waves

    def _noise_for(self, mel: Tensor) -> Tensor:
        rows, frames = mel.shape[:2]
        return mel.new_zeros(rows, (MEL_OVERLAP + frames) * HOP, SINES)

    def _in_flow(self, window: StreamWindow) -> Window:
        voiced = len(window.tokens) - (0 if window.final else self._lookahead)
        return Window(window.state, window.tokens, voiced)

    def _frames(self, window: Window) -> int:
        return FRAMES_PER_TOKEN * window.voiced + (MEL_OVERLAP if window.state.windows else 0)

    def _mel(self, packed: Tensor, shape: WindowShape) -> Tensor:
        rows, tokens = len(packed), shape.tokens

        def idle() -> Tensor:
            return self._flow_windows.pack([], shape, rows)

        def encode(packed: Tensor) -> Tensor:
            return self._flow_windows.encode(packed, shape)

        frames = self._replays.run(("encode", rows, shape), encode, (packed,), lambda: (idle(),))
        return self._replays.run(
            ("solve", rows, tokens),
            self._flow_windows.solve,
            (packed, frames),
            lambda: (idle(), torch.zeros_like(frames)),
        )

    def _wave(self, mel: Tensor, places: Tensor, noise: Tensor, *, full: bool) -> Tensor:
        def run(mel: Tensor, places: Tensor, noise: Tensor) -> Tensor:
            return self._vocoder_windows.run(mel, places, noise, full=full)

        def idle() -> tuple[Tensor, ...]:
            return torch.zeros_like(mel), self._nowhere(*mel.shape[:2], full=full), torch.zeros_like(noise)

        return self._replays.run(("vocode", *mel.shape[:2], full), run, (mel, places, noise), idle)

    def _nowhere(self, rows: int, frames: int, *, full: bool) -> Tensor:
        """Places of windows on the slot that nobody reads."""
        return torch.tensor([[self.slots.idle, 0 if full else 1, frames]]).repeat(rows, 1)
