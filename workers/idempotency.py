"""The same key and the same request make one job, or one batch, however often they are sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from stage_pipeline.errors import ErrorCode, StagewaveError


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's ``Idempotency-Key`` and the digest of the request it came with."""

    key: str
    fingerprint: str

    def digest(self, kind: str = "") -> str:
        """What the key is looked up by. Each ``kind`` has keys of its own: the same may make a job and a
        batch."""
        return hashlib.sha256(f"{kind} {self.key}".encode() if kind else self.key.encode()).hexdigest()


def key_taken() -> StagewaveError:
    return StagewaveError(
        ErrorCode.IDEMPOTENCY_MISMATCH,
        "this Idempotency-Key was used with another request",
        field="Idempotency-Key",
    )
