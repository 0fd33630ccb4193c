"""The flow: audio tokens and a voice to a mel spectrogram, a whole utterance at once.

Windows of a stream go through the same parts, with memory: see ``flow_window``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.dit import DiT
from stage_pipeline.engines.step_audio2.token2wav.flow_config import FlowConfig
from stage_pipeline.engines.step_audio2.token2wav.flow_encoder import POSITIONS, FlowEncoder, doubled_mask
from stage_pipeline.engines.step_audio2.token2wav.flow_matching import Solver
from stage_pipeline.engines.step_audio2.token2wav.memory import Blank, LayerMemory, Memory, Recorder, added

FRAMES_PER_TOKEN = 2


@dataclass(frozen=True, slots=True)
class VoiceFeatures:
    """A prepared voice, on the device of the flow.

    ``tokens`` int64 ``[n]``, ``mel`` float32 ``[2n, mels]``, ``embedding`` float32 ``[speaker width]``.
    """

    tokens: Tensor
    mel: Tensor
    embedding: Tensor

    @property
    def frames(self) -> int:
        return len(self.mel)


@dataclass(frozen=True, slots=True)
class VoiceCaches:
    """What a stream of a voice begins with: the memory of its prompt.

    Keys and values of the conformer's layers ``[layers, n, 2, heads, head width]`` for n tokens and for 2n
    frames, and of the DiT ``[steps, layers, 2, 2n, 2, heads, head width]`` (both halves of guidance);
    ``…_ends``: what the causal convolutions saw last, of the DiT
    ``[steps, layers, places, 2, frames, width]``.
    """

    features: VoiceFeatures
    speaker: Tensor
    token_keys: Tensor
    frame_keys: Tensor
    lookahead_ends: Tensor
    upsample_ends: Tensor
    step_keys: Tensor
    step_ends: Tensor


class _Decoder(nn.Module):
    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.estimator = DiT(config.estimator, config.mels)


class FlowWeights(nn.Module):
    """The module tree of ``flow.pt``, by its names."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.input_embedding = nn.Embedding(config.vocabulary, config.encoder.width)
        self.spk_embed_affine_layer = nn.Linear(config.speaker_width, config.mels)
        self.encoder = FlowEncoder(config.encoder)
        self.encoder_proj = nn.Linear(config.encoder.width, config.mels)
        self.decoder = _Decoder(config)


class Flow:
    """Computes with the weights of one checkpoint. ``noise``: float32 ``[columns, mels]``, the same for
    every utterance; a frame takes the column of its place, so the result depends on nothing else."""

    def __init__(
        self,
        weights: FlowWeights,
        config: FlowConfig,
        noise: Tensor,
        *,
        steps: int = 10,
        guidance: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.config = config
        self.weights = weights.requires_grad_(False).eval()
        estimator = weights.decoder.estimator
        self.solver = Solver(estimator, steps, config.guidance if guidance is None else guidance)
        weights.to(dtype)
        self.solver.settle(dtype)
        estimator.fuse()
        self.noise = noise.to(self.device)
        self.distances = weights.encoder.distances(POSITIONS, POSITIONS)

    @property
    def device(self) -> torch.device:
        return self.weights.encoder_proj.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.encoder_proj.weight.dtype

    def speaker(self, embedding: Tensor) -> Tensor:
        """``[batch, speaker width]`` to float32 ``[batch, mels]``."""
        projected: Tensor = self.weights.spk_embed_affine_layer(
            functional.normalize(embedding, dim=1).to(self.dtype)
        )
        return projected.float()

    def whole(
        self,
        voices: list[VoiceFeatures],
        tokens: list[Tensor],
        before_step: Callable[[], None] = lambda: None,
    ) -> list[Tensor]:
        """Voice whole utterances together: float32 ``[2n, mels]`` for each of the int64 ``[n]`` tokens."""
        lookahead = self.config.encoder.lookahead
        joined = [torch.cat([voice.tokens, own]) for voice, own in zip(voices, tokens, strict=True)]
        counts = [len(one) for one in joined]
        longest = max(counts)
        ids = nn.utils.rnn.pad_sequence(joined, batch_first=True)
        ids = functional.pad(ids, (0, lookahead))
        present = (
            torch.arange(longest + lookahead, device=self.device)
            < torch.tensor(counts, device=self.device)[:, None]
        )
        mask = None if min(counts) == longest else added(present[:, None, None, :longest], self.dtype)
        frame_mask = doubled_mask(mask)
        frames = self.encode(ids, present, Blank(mask), Blank(frame_mask))
        prompt = torch.zeros_like(frames)
        for row, voice in zip(prompt, voices, strict=True):
            row[: voice.frames] = voice.mel
        both = Blank(None if frame_mask is None else torch.cat([frame_mask, frame_mask]))
        noise = self.noise[: frames.shape[1]].expand_as(frames)
        speaker = self.speaker(torch.stack([voice.embedding for voice in voices]))

        def memory(_step: int) -> Blank:
            before_step()
            return both

        mels = self.solver.solve(noise, frames, speaker, prompt, memory)
        return [
            mel[voice.frames : voice.frames + FRAMES_PER_TOKEN * len(own)]
            for mel, voice, own in zip(mels, voices, tokens, strict=True)
        ]

    def prompt_caches(self, voice: VoiceFeatures) -> VoiceCaches:
        """Run a voice's prompt as the first window of a stream; its lookahead is its own first tokens."""
        ids = torch.cat([voice.tokens, voice.tokens[: self.config.encoder.lookahead]])[None]
        tokens, frame_memory = Recorder(), Recorder()
        steps = [Recorder() for _ in range(self.solver.steps)]
        frames = self.encode(ids, torch.ones_like(ids, dtype=torch.bool), tokens, frame_memory)
        speaker = self.speaker(voice.embedding[None])
        noise = self.noise[None, : voice.frames]
        self.solver.solve(noise, frames, speaker, voice.mel[None], lambda step: steps[step])
        return VoiceCaches(
            voice,
            speaker[0],
            tokens.all_keys()[:, 0],
            frame_memory.all_keys()[:, 0],
            tokens.of(0).ends[0][0],
            frame_memory.of(0).ends[0][0],
            torch.stack([step.all_keys() for step in steps]),
            torch.stack([step.all_ends() for step in steps]),
        )

    def encode(
        self, ids: Tensor, present: Tensor, tokens: Memory[LayerMemory], frames: Memory[LayerMemory]
    ) -> Tensor:
        """``[batch, n + lookahead]`` ids of a start to float32 ``[batch, 2n, mels]``."""
        encoder = self.weights.encoder
        count = ids.shape[1] - self.config.encoder.lookahead
        encoded: Tensor = encoder(
            self.weights.input_embedding(ids), present, self.distances.nearer(count, count), tokens, frames
        )
        return self.project(encoded)

    def project(self, encoded: Tensor) -> Tensor:
        """The encoder's frames to float32 ``[batch, frames, mels]``."""
        projected: Tensor = self.weights.encoder_proj(encoded)
        return projected.float()
