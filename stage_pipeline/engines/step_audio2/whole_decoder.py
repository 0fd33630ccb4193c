"""Voices whole utterances together. For one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stage_pipeline.engines.step_audio2.flow import Flow, VoiceFeatures
from stage_pipeline.engines.step_audio2.harmonic_source import HOP, SINES
from stage_pipeline.engines.step_audio2.hift import HiFT
from stage_pipeline.engines.step_audio2.noise import Noise
from stage_pipeline.stages import Float32Wave


@dataclass(frozen=True, slots=True)
class Utterance:
    voice: VoiceFeatures
    seed: int
    tokens: Sequence[int]


class WholeDecoder:
    """The flow takes utterances of like length together; the vocoder one at a time, since a few seconds of
    audio at 24 kHz fill a GPU by themselves."""

    def __init__(self, flow: Flow, vocoder: HiFT, noise: Noise) -> None:
        self._flow = flow
        self._vocoder = vocoder
        self._noise = noise

    def voice(self, utterances: Sequence[Utterance]) -> list[Float32Wave]:
        """float32 ``[960 * tokens]`` for each."""
        tokens = [
            torch.tensor(one.tokens, dtype=torch.int64, device=self._flow.device) for one in utterances
        ]
        mels = self._flow.whole([one.voice for one in utterances], tokens)
        waves = []
        for one, mel in zip(utterances, mels, strict=True):
            noise = mel.new_empty(len(mel) * HOP, SINES)
            self._noise.harmonics(one.seed, 0, noise)
            source = self._vocoder.source(mel[None], noise[None])
            waves.append(self._vocoder.decode(mel[None], source)[0])
        return [wave.cpu().numpy() for wave in waves]
