"""Voices whole utterances together. For one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from stage_pipeline.engines.step_audio2.token2wav.flow import Flow, VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.harmonic_source import HOP, SINES
from stage_pipeline.engines.step_audio2.token2wav.hift import HiFT
from stage_pipeline.engines.step_audio2.token2wav.noise import Noise
from stage_pipeline.stages import Float32Wave


@dataclass(frozen=True, slots=True)
class Utterance:
    """``background``: others go before it."""

    voice: VoiceFeatures
    seed: int
    tokens: Sequence[int]
    background: bool = False


class WholeDecoder:
    """All in one pass: for those of like length, since the shorter are padded."""

    def __init__(self, flow: Flow, vocoder: HiFT, noise: Noise) -> None:
        self._flow = flow
        self._vocoder = vocoder
        self._noise = noise

    def voice(
        self, utterances: Sequence[Utterance], before_step: Callable[[], None] = lambda: None
    ) -> list[Float32Wave]:
        """float32 ``[960 * tokens]`` for each. The work has a dozen steps of like length."""
        tokens = [
            torch.tensor(one.tokens, dtype=torch.int64, device=self._flow.device) for one in utterances
        ]
        mels = self._flow.whole([one.voice for one in utterances], tokens, before_step)
        counts = [len(mel) for mel in mels]
        noise = mels[0].new_zeros(len(mels), max(counts) * HOP, SINES)
        for row, one, count in zip(noise, utterances, counts, strict=True):
            self._noise.harmonics(one.seed, 0, row[: count * HOP])
        frames = None if min(counts) == max(counts) else torch.tensor(counts, device=self._flow.device)
        mel = nn.utils.rnn.pad_sequence(mels, batch_first=True)
        before_step()
        waves = self._vocoder.decode(mel, self._vocoder.source(mel, noise, frames), frames).cpu().numpy()
        return [wave[: count * HOP].copy() for wave, count in zip(waves, counts, strict=True)]
