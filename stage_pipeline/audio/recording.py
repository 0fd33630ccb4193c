"""Audio that lies decoded in a file: however long it is, only what is being heard is in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from stage_pipeline.audio.decode import decode_blocks
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.stages import THINKER_RATE_HZ, Float32Wave


class Recording:
    """float32 mono samples at ``THINKER_RATE_HZ``, read from any thread; the file belongs to the caller."""

    def __init__(self, path: Path, samples: int) -> None:
        self._path = path
        self.samples = samples

    @property
    def duration_s(self) -> float:
        return self.samples / THINKER_RATE_HZ

    def read(self, start: int, stop: int) -> Float32Wave:
        """float32 ``[stop - start]``; less at the end."""
        return np.fromfile(self._path, np.float32, count=stop - start, offset=4 * start)

    def whole(self) -> Float32Wave:
        """All of it, for an engine that wants it so: mapped, and not read before it is touched."""
        return np.memmap(self._path, np.float32, mode="r")


def record(
    file: BinaryIO, path: Path, *, limits: DecodeLimits, between: Callable[[], None] = lambda: None
) -> Recording:
    """Decode an audio file to ``path``; ``between`` is called after each block, and may raise to end it."""
    samples = 0
    with path.open("wb") as out:
        for block in decode_blocks(file, limits=limits):
            out.write(block.data)
            samples += len(block)
            between()
    return Recording(path, samples)
