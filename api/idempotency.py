"""``Idempotency-Key``: the same key and the same request make one job, however often they are sent."""

from __future__ import annotations

import hashlib
import json
import re

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.idempotency import Idempotency
from workers.input_audio import NamedOrSent, SentBytes
from workers.job import JsonObject
from workers.job_request import JobRequest

HEADER = "Idempotency-Key"
_USABLE = re.compile(r"[\x21-\x7e]{1,255}")


def idempotency_of(
    key: str | None, request: JobRequest, audio: NamedOrSent | None, path: str = ""
) -> Idempotency | None:
    """None without a key. The fingerprint covers what was asked and the bytes of the audio, not how
    they were written down: key order, spacing, JSON or form. ``path``: where it was asked, if that
    says more than the request does."""
    asked = request.model_dump(mode="json")
    if key is not None and isinstance(audio, SentBytes):
        asked["audio_url"] = f"sha256:{audio.sha256()}"
    if path:
        asked["path"] = path
    return keyed(key, asked)


def keyed(key: str | None, asked: JsonObject) -> Idempotency | None:
    """The same for whatever else may be asked for."""
    if key is None:
        return None
    if not _USABLE.fullmatch(key):
        raise StagewaveError(
            ErrorCode.INVALID_REQUEST, "it must be 1 to 255 visible ASCII characters", field=HEADER
        )
    canonical = json.dumps(asked, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return Idempotency(key, hashlib.sha256(canonical.encode()).hexdigest())
