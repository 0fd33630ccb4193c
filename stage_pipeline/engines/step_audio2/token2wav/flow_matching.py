"""The solver: conditional flow matching with classifier-free guidance, Euler steps on a cosine schedule.

Lipman et al., 2023; guidance after Ho & Salimans, 2022: ``(1 + g) * conditional - g * unconditional``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from stage_pipeline.engines.step_audio2.token2wav.dit import DiT
from stage_pipeline.engines.step_audio2.token2wav.memory import AttendingMemory, Memory


def schedule(steps: int) -> Tensor:
    """float32 ``[steps + 1]`` from 0 to 1, closer together at first."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * (0.5 * math.pi))


class Solver:
    """Carries noise to a mel spectrogram. The state is float32, whatever the estimator computes in."""

    def __init__(self, estimator: DiT, steps: int, guidance: float) -> None:
        self._estimator = estimator
        self._guidance = guidance
        times = schedule(steps)
        self._lengths = (times[1:] - times[:-1]).tolist()
        device = estimator.in_proj.weight.device
        self._modulations = estimator.modulations(times[:-1].to(device))

    @property
    def steps(self) -> int:
        return len(self._lengths)

    def settle(self, dtype: torch.dtype) -> None:
        """Take the estimator's final precision; the modulations were computed in the one before."""
        for modulation in self._modulations:
            object.__setattr__(modulation, "blocks", modulation.blocks.to(dtype))
            object.__setattr__(modulation, "last", modulation.last.to(dtype))

    def solve(
        self,
        noise: Tensor,
        frames: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        memory: Callable[[int], Memory[AttendingMemory]],
    ) -> Tensor:
        """All ``[batch, frames, mels]`` float32, ``speaker`` ``[batch, mels]``; ``prompt`` is the known
        mel, zeros elsewhere. ``memory(step)`` is for twice the batch: first the conditional half, then
        the other."""
        x = noise
        known = torch.cat([frames, speaker[:, None].expand_as(frames), prompt], dim=-1)
        known = torch.cat([known, torch.zeros_like(known)])
        dtype = self._estimator.in_proj.weight.dtype
        for step, (length, modulation) in enumerate(zip(self._lengths, self._modulations, strict=True)):
            both = torch.cat([torch.cat([x, x]), known], dim=-1).to(dtype)
            velocity: Tensor = self._estimator(both, modulation, memory(step))
            conditional, unconditional = velocity.float().chunk(2)
            x = x + length * ((1 + self._guidance) * conditional - self._guidance * unconditional)
        return x
