"""How a wave becomes what the audio tower hears: pieces of 25 s, their log-mels, and their places in the
prompt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from stage_pipeline.engines.step_audio2.spectra import TOKENIZER_RATE_HZ, tokenizer_mel

PIECE_SAMPLES = 25 * TOKENIZER_RATE_HZ
_HOP = 160
# Enough that the last sample has a whole window, as the model was trained.
_PADDING = 479
# The last two frames see only that padding.
_BLIND_FRAMES = 2


def pieces(wave: Tensor) -> tuple[Tensor, ...]:
    """16 kHz ``[samples]`` in pieces of 25 s; the last one takes the rest."""
    return wave.split(PIECE_SAMPLES) if len(wave) else ()


def piece_mel(piece: Tensor) -> Tensor:
    """float32 16 kHz ``[samples]`` to ``[128, mel_frames(samples)]``."""
    return tokenizer_mel(functional.pad(piece, (0, _PADDING)))


def mel_frames(samples: int) -> int:
    return (samples + _PADDING) // _HOP


def heard_frames(frames: int) -> int:
    """How many of a piece's mel frames count."""
    return frames - _BLIND_FRAMES


def patches(frames: int) -> int:
    """``<audio_patch>`` tokens of a piece of so many mel frames: 12.5 a second, 313 of a full piece, none
    up to 320 samples."""
    encoded = (heard_frames(frames) + 1) // 2 // 2
    return (encoded - 1) // 2 + 1


def piece_patches(samples: int) -> tuple[int, ...]:
    """``<audio_patch>`` tokens of each piece of a wave."""
    starts = range(0, samples, PIECE_SAMPLES)
    return tuple(patches(mel_frames(min(PIECE_SAMPLES, samples - start))) for start in starts)


def prompt_ids(samples: int, start: int, patch: int, end: int) -> list[int]:
    """What stands for a wave in the prompt: each piece's patches between ``<audio_start>`` and
    ``<audio_end>``."""
    return [token for count in piece_patches(samples) for token in (start, *[patch] * count, end)]


def together(mels: Sequence[Tensor]) -> Tensor:
    """Pieces of one request as the model takes them: ``[pieces, 128, longest]``, zeros after the end."""
    longest = max(mel.shape[1] for mel in mels)
    return torch.stack([functional.pad(mel, (0, longest - mel.shape[1])) for mel in mels])
