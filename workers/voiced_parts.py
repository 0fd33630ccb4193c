"""What attempts of a long job have voiced, kept in the object store until the job ends.

An attempt that comes after a lost worker goes on behind it, and need not speak an hour again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

import numpy as np

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.messages import wave_to_pcm16
from stage_pipeline.stages import Float32Wave
from workers.attempt import Attempt
from workers.breaker import Breaker
from workers.object_store import ObjectStore
from workers.results import voiced_prefix

PART_S = 30.0
"""Sound that a lost worker may cost. It ends with the piece in which it becomes so long."""
_MOST_S = 180.0
"""So much waits for a store that is away before no more is kept."""
_BLOCK_S = 5.0
_CONTENT_TYPE = "application/octet-stream"


class VoicedParts:
    """One attempt's. A part is int16 PCM at the engine's rate; its key tells of which tokens it was made
    (by the Thinker's attempt that began them), and from which piece to which."""

    def __init__(
        self, objects: ObjectStore, breaker: Breaker, attempt: Attempt, begun_by: int, rate_hz: int
    ) -> None:
        self._objects = objects
        self._breaker = breaker
        self._attempt = attempt
        self._prefix = voiced_prefix(attempt.job.id, begun_by)
        self._rate_hz = rate_hz
        self._keeping = True
        self._pcm = bytearray()
        self._first_piece = 0
        self.pieces = 0
        """Whole pieces that are voiced, by this attempt and those before it."""
        self.any = False
        """Whether the store has any part."""

    def restore(self) -> Iterator[Float32Wave]:
        """What earlier attempts have voiced, in blocks; ``pieces`` says how far it goes. That is no further
        than the store can be reached: to voice it again is better than to wait."""
        stored = self._breaker.once(self._attempt, self._stored) or {}
        while (end := stored.get(self.pieces)) is not None:
            key = self._key(self.pieces, end)
            pcm = self._breaker.once(self._attempt, partial(self._read, key))
            if not pcm:
                break
            wave = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768.0)
            for block in np.array_split(wave, max(1, round(len(wave) / self._rate_hz / _BLOCK_S))):
                self._attempt.check()
                yield block
            self.pieces, self.any = end, True
        self._first_piece = self.pieces

    def add(self, wave: Float32Wave) -> Float32Wave:
        """Note what was voiced next, and give it back."""
        if self._keeping:
            self._pcm += wave_to_pcm16(wave)
        return wave

    def end_piece(self) -> None:
        """What was added ends a piece that another follows."""
        self.pieces += 1
        if not self._keeping or len(self._pcm) < 2 * PART_S * self._rate_hz:
            return
        # Not worth waiting for a store that is away: all that it saves is time, should this worker be lost.
        if self._breaker.once(self._attempt, self._store):
            self.any = True
            self._first_piece = self.pieces
        elif len(self._pcm) < 2 * _MOST_S * self._rate_hz:
            return  # it goes with the next piece
        else:
            self._keeping = False
        self._pcm.clear()

    def _key(self, first: int, end: int) -> str:
        return f"{self._prefix}{first}-{end}"

    def _store(self) -> int:
        key = self._key(self._first_piece, self.pieces)
        return self._objects.put_file(key, io.BytesIO(self._pcm), _CONTENT_TYPE)

    def _stored(self) -> dict[int, int]:
        """First piece to the one after the last, of each part; where two overlap, of the longer one."""
        names = [
            item.key.removeprefix(self._prefix).split("-") for item in self._objects.list(self._prefix)
        ]
        return dict(sorted((int(first), int(end)) for first, end in names))

    def _read(self, key: str) -> bytes:
        """Nothing, where another attempt has won and tidied up."""
        try:
            with self._objects.open(key) as found:
                return b"".join(found.iter_chunks())
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return b""
            raise
