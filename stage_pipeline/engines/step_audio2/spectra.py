"""The three spectrograms that a voice's prompt is seen through. float32 waves in [-1, 1], mono."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

TOKENIZER_RATE_HZ = 16_000
MEL_RATE_HZ = 24_000

_KALDI_FLOOR = 1.1920928955078125e-07


def tokenizer_mel(wave: Tensor) -> Tensor:
    """16 kHz ``[samples]`` to ``[128, frames]``, 100 frames a second: what Whisper hears (Radford et al.,
    2022)."""
    power = _spectrum(functional.pad(wave[None], (200, 200), mode="reflect")[0], 400, 160).square()
    mel = _slaney(TOKENIZER_RATE_HZ, 400, 128, 8000.0) @ power.T[:, :-1]
    loudness = mel.clamp(min=1e-10).log10()
    return (torch.maximum(loudness, loudness.max() - 8) + 4) / 4


def prompt_mel(wave: Tensor) -> Tensor:
    """24 kHz ``[samples]`` to ``[frames, 80]``, 50 frames a second: what the flow draws."""
    padded = functional.pad(wave[None], (720, 720), mode="reflect")[0]
    magnitude = (_spectrum(padded, 1920, 480).square() + 1e-9).sqrt()
    mel: Tensor = magnitude @ _slaney(MEL_RATE_HZ, 1920, 80, 8000.0).T
    return mel.clamp(min=1e-5).log()


def speaker_fbank(wave: Tensor) -> Tensor:
    """16 kHz ``[samples]`` to ``[frames, 80]``, 100 frames a second, each bin's mean over time taken off:
    Kaldi's fbank without dither, which the speaker embedding was trained on."""
    frames: Tensor = wave.unfold(0, 400, 160)
    frames = frames - frames.mean(1, keepdim=True)
    before = torch.cat([frames[:, :1], frames[:, :-1]], dim=1)
    window = torch.hann_window(400, periodic=False).pow(0.85)
    power: Tensor = torch.fft.rfft((frames - 0.97 * before) * window, 512).abs().square()
    bank = (power[:, :256] @ _kaldi_triangles().T).clamp(min=_KALDI_FLOOR).log()
    return bank - bank.mean(0, keepdim=True)


def _spectrum(wave: Tensor, size: int, hop: int) -> Tensor:
    """Magnitudes ``[frames, size / 2 + 1]``."""
    spectrum: Tensor = torch.fft.rfft(wave.unfold(0, size, hop) * torch.hann_window(size))
    return spectrum.abs()


def _slaney(rate_hz: int, size: int, mels: int, highest_hz: float) -> Tensor:
    """Triangles of equal area (Slaney, 1998): ``[mels, size / 2 + 1]``; linear below 1 kHz, logarithmic
    above."""
    bins = torch.linspace(0, rate_hz / 2, size // 2 + 1, dtype=torch.float64)
    # 15 mels to 1 kHz, then 27 mels to 6.4 times that.
    highest = 15 + 27 * math.log(highest_hz / 1000) / math.log(6.4)
    scale = torch.linspace(0, highest, mels + 2, dtype=torch.float64)
    edges = torch.where(
        scale < 15, scale * (200 / 3), 1000 * torch.exp((scale - 15) * (math.log(6.4) / 27))
    )
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = torch.minimum((bins - left) / (middle - left), (right - bins) / (right - middle)).clamp(
        min=0
    )
    return (triangles * 2 / (right - left)).float()


def _kaldi_triangles() -> Tensor:
    """``[80, 256]``: triangles on Kaldi's mel scale from 20 Hz to 8 kHz, for the bins below the last."""

    def mel(hz: Tensor) -> Tensor:
        return 1127 * torch.log(1 + hz / 700)

    bins = mel(torch.arange(256, dtype=torch.float64) * (TOKENIZER_RATE_HZ / 512))
    low, high = mel(torch.tensor([20.0, 8000.0], dtype=torch.float64)).tolist()
    edges = torch.linspace(low, high, 82, dtype=torch.float64)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return (
        torch.minimum((bins - left) / (middle - left), (right - bins) / (right - middle))
        .clamp(min=0)
        .float()
    )
