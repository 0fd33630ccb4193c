"""All the randomness of Token2Wav, from fixed seeds: the same job sounds the same wherever it runs."""

from __future__ import annotations

import torch
from torch import Tensor

# Any number would do: the official noise is unseeded, so there is none to agree with.
_FLOW_SEED = 20_250_716
# Keeps the windows of neighbouring seeds apart: no job has so many windows.
_APART = 1_000_003
FLOW_COLUMNS = 30_000
"""Ten minutes of frames: the longest utterance, prompt included, that can be voiced at once."""


class Noise:
    """The flow's noise belongs to the engine, since what a voice begins with is computed from it once;
    the vocoder's belongs to the job."""

    def flow(self, mels: int) -> Tensor:
        """float32 ``[30000, mels]``, drawn on the CPU: equal on every device."""
        generator = torch.Generator().manual_seed(_FLOW_SEED)
        return torch.randn(FLOW_COLUMNS, mels, generator=generator)

    def harmonics(self, seed: int, window: int, out: Tensor) -> None:
        """Fill ``out`` ``[samples, 9]`` for one window of a job; its place decides, not what ran before."""
        generator = torch.Generator(out.device).manual_seed((seed * _APART + window) % 2**63)
        out.normal_(generator=generator)
