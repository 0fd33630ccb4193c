"""Prepares voices in a Token2Wav worker, once each, and brings prepared ones to the engine."""

from __future__ import annotations

import logging
import threading
import time

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Token2Wav
from workers.attempt import Attempt
from workers.backend import Backend
from workers.breaker import Breaker
from workers.voice import Voice, features_key, prompt_key

_log = logging.getLogger(__name__)

_LOOK_S = 0.2
_CONTENT_TYPE = "application/octet-stream"


class VoicePreparer:
    """One for a process; called from many threads."""

    def __init__(self, backend: Backend, engine: Token2Wav, pool: str, breaker: Breaker) -> None:
        self._backend = backend
        self._engine = engine
        self._pool = pool
        self._breaker = breaker
        self._lock = threading.Lock()

    def run_one(self) -> bool:
        """Prepare the voice that has waited longest; False when none waits, or one is being prepared."""
        # One at a time: it takes every core there is, and jobs are waited for.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            voice = self._backend.voices.claim(self._pool)
            if voice is not None:
                self._prepare(voice)
            return voice is not None
        finally:
            self._lock.release()

    def features(self, attempt: Attempt, voice_id: str) -> bytes:
        """A voice's features, for an attempt that is to speak in it. Prepared here if nobody has yet: so
        no attempt waits for a worker that may itself be waiting. Raises ``voice_failed``."""
        while True:
            attempt.check()
            voice = self._backend.voices.get(voice_id)
            if voice.status == "failed":
                raise StagewaveError(
                    ErrorCode.VOICE_FAILED, "the voice could not be prepared", field="voice"
                )
            if voice.status == "ready":
                return self._breaker.call(attempt, lambda: self._stored(voice_id))
            claimed = self._backend.voices.claim(self._pool, voice_id)
            if claimed is not None:
                self._prepare(claimed)
            else:
                time.sleep(_LOOK_S)

    def _stored(self, voice_id: str) -> bytes:
        try:
            return self._read(features_key(voice_id, self._engine.voice_tag))
        except StagewaveError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
        # It was prepared with another checkpoint than the one that is served now.
        return self._make(voice_id)

    def _prepare(self, voice: Voice) -> None:
        began = time.monotonic()
        try:
            self._make(voice.id)
        except StagewaveError as error:
            outcome = error.code.code
            self._backend.voices.settle_failed(voice, error)
        except Exception:
            # The edge of a task: log the cause once, and let the record know only that it failed.
            outcome = ErrorCode.INTERNAL.code
            _log.exception("voice broke", extra={"voice_id": voice.id})
            self._backend.voices.settle_failed(
                voice, StagewaveError(ErrorCode.INTERNAL, "an internal error ended its preparation")
            )
        else:
            outcome = "ready"
            self._backend.voices.settle_ready(voice)
        elapsed_ms = round((time.monotonic() - began) * 1000, 1)
        _log.info("voice prepared", extra={"voice_id": voice.id, "outcome": outcome, "ms": elapsed_ms})

    def _make(self, voice_id: str) -> bytes:
        features = self._engine.prepare_voice(self._read(prompt_key(voice_id)))
        key = features_key(voice_id, self._engine.voice_tag)
        self._backend.objects.put_bytes(key, features, _CONTENT_TYPE)
        return features

    def _read(self, key: str) -> bytes:
        with self._backend.objects.open(key) as found:
            return b"".join(found.iter_chunks())
