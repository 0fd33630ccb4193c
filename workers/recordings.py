"""A job's audio: fetched from the object store, and decoded into a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.recording import Recording, record
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.attempt import Attempt
from workers.backend import Backend
from workers.breaker import Breaker
from workers.job import AudioSource
from workers.results import input_key


class Recordings:
    """One for a process; ``take`` is called from many threads."""

    def __init__(self, backend: Backend, breaker: Breaker, longest_s: float) -> None:
        self._backend = backend
        self._breaker = breaker
        self._limits = DecodeLimits(size_bytes=backend.settings.max_upload_bytes, duration_s=longest_s)
        # A decoder may be a process of its own, and there may be hundreds of jobs at a time.
        self._decoding = threading.BoundedSemaphore(os.cpu_count() or 1)

    def take(self, attempt: Attempt, source: AudioSource, folder: Path) -> Recording:
        """The audio of ``source``, which lies in ``folder`` from then on."""
        key = source.key if source.kind == "s3" and source.key else input_key(attempt.job.id)
        path = folder / "input"
        self._breaker.call(attempt, lambda: self._download(key, path))
        attempt.check()
        with self._decoding, path.open("rb") as file:
            recording = record(file, folder / "recording", limits=self._limits, between=attempt.check)
        path.unlink()
        return recording

    def _download(self, key: str, path: Path) -> None:
        try:
            self._backend.objects.download(key, path, self._backend.settings.max_upload_bytes)
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise StagewaveError(ErrorCode.FETCH_FAILED, "the audio object does not exist") from error
            raise
