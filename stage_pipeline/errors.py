"""Every error a user can meet: one code, one HTTP status, and whether trying again can help."""

from __future__ import annotations

import errno
from enum import Enum


class ErrorCode(Enum):
    """``(stable code, HTTP status, retryable)``. The code is part of the API and never changes."""

    # What the client sent
    INVALID_REQUEST = ("invalid_request", 422, False)
    INVALID_JSON = ("invalid_json", 400, False)
    INVALID_MULTIPART = ("invalid_multipart", 400, False)
    UNSUPPORTED_MEDIA_TYPE = ("unsupported_media_type", 415, False)
    TOO_LARGE = ("too_large", 413, False)
    UNAUTHORIZED = ("unauthorized", 401, False)
    NOT_FOUND = ("not_found", 404, False)
    METHOD_NOT_ALLOWED = ("method_not_allowed", 405, False)
    NOT_READY = ("not_ready", 409, True)
    JOB_FINISHED = ("job_finished", 409, False)
    GONE = ("gone", 410, False)
    RANGE_NOT_SATISFIABLE = ("range_not_satisfiable", 416, False)
    NOT_ACCEPTABLE = ("not_acceptable", 406, False)
    IDEMPOTENCY_MISMATCH = ("idempotency_mismatch", 422, False)
    TEXT_EMPTY = ("text_empty", 422, False)
    TEXT_TOO_LONG = ("text_too_long", 422, False)
    VOICE_UNKNOWN = ("voice_unknown", 422, False)
    VOICE_UNSUPPORTED = ("voice_unsupported", 422, False)
    VOICE_FAILED = ("voice_failed", 422, False)
    VOICE_EXISTS = ("voice_exists", 409, False)
    VOICE_BUILT_IN = ("voice_built_in", 409, False)
    TOO_MANY_VOICES = ("too_many_voices", 409, False)
    MODEL_UNKNOWN = ("model_unknown", 422, False)
    LANGUAGE_UNSUPPORTED = ("language_unsupported", 422, False)

    # The audio that was handed in
    AUDIO_EMPTY = ("audio_empty", 422, False)
    NOT_AUDIO = ("not_audio", 422, False)
    NO_AUDIO_STREAM = ("no_audio_stream", 422, False)
    AUDIO_TOO_LONG = ("audio_too_long", 422, False)
    AUDIO_TOO_SHORT = ("audio_too_short", 422, False)
    AUDIO_TOO_QUIET = ("audio_too_quiet", 422, False)
    AUDIO_SILENT = ("audio_silent", 422, False)
    AUDIO_CLIPPED = ("audio_clipped", 422, False)
    AUDIO_RATE_TOO_LOW = ("audio_rate_too_low", 422, False)
    URL_NOT_ALLOWED = ("url_not_allowed", 422, False)
    FETCH_FAILED = ("fetch_failed", 422, False)
    FETCH_TIMEOUT = ("fetch_timeout", 422, False)

    # The system's own state
    QUEUE_FULL = ("queue_full", 429, True)
    TOO_MANY_WAITERS = ("too_many_waiters", 503, True)
    BROKER_UNAVAILABLE = ("broker_unavailable", 503, True)
    STORE_UNAVAILABLE = ("store_unavailable", 503, True)
    DISK_FULL = ("disk_full", 507, True)

    # The end of a job
    NO_AUDIO = ("no_audio", 500, False)
    WORKER_LOST = ("worker_lost", 500, True)
    DEADLINE_EXCEEDED = ("deadline_exceeded", 504, True)
    ENGINE_FAILED = ("engine_failed", 500, True)
    INTERNAL = ("internal", 500, True)

    def __init__(self, code: str, http_status: int, retryable: bool) -> None:
        self.code = code
        self.http_status = http_status
        self.retryable = retryable


class EngineDead(Exception):
    """The engine of this process can do no more for anybody: the process has to end and be started again.

    Raised by an engine's ``generate`` and ``feed``, for every request that was in it."""


class StagewaveError(Exception):
    """A failure with a stable code.

    ``message`` is public: it never holds a path, a host, a traceback or raw user text. ``field`` names
    the request field at fault; ``retry_after_s`` is the least time to wait before trying again.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s

    def __repr__(self) -> str:
        return f"StagewaveError({self.code.code!r}, {self.message!r})"


def is_disk_full(error: BaseException) -> bool:
    """Whether there was no room to write; FFmpeg's errors say so in the same way as the system's."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
