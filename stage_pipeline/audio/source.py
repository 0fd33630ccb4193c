"""What every reader of audio files gives: the file's own samples, block by block."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from stage_pipeline.stages import Float32Wave


@dataclass(frozen=True, slots=True)
class Block:
    """``samples``: float32 ``[frames, channels]`` at ``rate_hz``, full scale 1; values may be out of
    range or no numbers at all, as the file has them. Rate and channels may change inside a file."""

    rate_hz: int
    samples: Float32Wave


@dataclass(frozen=True, slots=True)
class AudioSource:
    """An opened file and what its header says; closing ``blocks`` frees whatever reads it."""

    format: str
    rate_hz: int
    channels: int
    blocks: Generator[Block]
