"""A batch: many jobs out of one file of lines (``BatchSpec``), and how far it has come (``Batch``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Literal

from pydantic import TypeAdapter
from ulid import ULID

from workers.ids import is_id, new_id
from workers.job import JsonObject, WebhookTarget

_PREFIX = "batch_"
BATCH_EVENTS = ("batch.progress", "batch.completed", "batch.failed", "batch.cancelled")
_LINE_BYTES = 4
"""Of the 10 random bytes of a ULID: a job's id is made of its batch's id and its line's number."""

Only = Literal["failed", "unfinished", "not_succeeded"]


class BatchStatus(StrEnum):
    """As in OpenAI's Batch API."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.CANCELLED)


def new_batch_id() -> str:
    """``batch_`` and a ULID: ids sort by creation."""
    return new_id(_PREFIX)


def is_batch_id(text: str) -> bool:
    return is_id(text, _PREFIX)


def line_job_id(batch_id: str, line: int) -> str:
    """The one id that the job of a line can have, so that no line is ever two jobs. Ids of a batch sort by
    line."""
    ulid = ULID.from_str(batch_id[len(_PREFIX) :])
    return f"job_{ULID(ulid.bytes[:-_LINE_BYTES] + line.to_bytes(_LINE_BYTES, 'big'))}"


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What a client asked for; it never changes once the batch is made."""

    input_key: str
    input_file_id: str | None = None
    endpoint: str | None = None
    completion_window: str = "24h"
    metadata: JsonObject = field(default_factory=dict)
    priority: int = 0
    """Among batches; jobs of batches stand behind all others in any case."""
    webhook: WebhookTarget | None = None
    resumes: str | None = None
    only: Only | None = None
    """Which lines of the batch that it ``resumes``."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> BatchSpec:
        return _SPEC.validate_json(text)


_SPEC: TypeAdapter[BatchSpec] = TypeAdapter(BatchSpec)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's record at one moment. Times are Unix seconds by the broker's clock."""

    id: str
    spec: BatchSpec
    status: BatchStatus
    total: int
    """Lines that ask for something; 0 until they have been counted."""
    jobs: int
    """Jobs made so far."""
    running: int
    succeeded: int
    failed: int
    canceled: int
    faulty: int
    """Of the failed ones, lines that no job could be made of."""
    line: int
    """How many lines have been read; blank ones are lines too."""
    offset: int
    """How many bytes they had."""
    input_bytes: int
    read_all: bool
    written_line: int
    """How many lines have their outcome in the output or the errors."""
    rate_per_s: float
    usage: JsonObject
    errors: tuple[JsonObject, ...]
    """Why the whole batch failed."""
    output_file_id: str | None
    error_file_id: str | None
    times: Mapping[str, float]
    """``created``, ``in_progress``, ``finalizing``, and how it ended."""

    @classmethod
    def from_hash(cls, record: Mapping[str, str]) -> Batch:
        """From the fields of the Redis hash; ``lua/batch_create.lua`` says what they are."""

        def number(name: str) -> int:
            return int(record.get(name, 0))

        usage: JsonObject = {}
        for name in ("prompt_tokens", "text_tokens", "audio_tokens"):
            usage[name] = number(f"usage:{name}")
        for name in ("audio_in", "audio_out", "engine"):
            usage[f"{name}_s"] = number(f"usage:{name}_ms") / 1000
        return cls(
            id=record["id"],
            spec=BatchSpec.from_json(record["spec"]),
            status=BatchStatus(record["status"]),
            total=number("total"),
            jobs=number("jobs"),
            running=number("running"),
            succeeded=number("succeeded"),
            failed=number("failed"),
            canceled=number("canceled"),
            faulty=number("faulty"),
            line=number("line"),
            offset=number("offset"),
            input_bytes=number("input_bytes"),
            read_all=record.get("read_all") == "1",
            written_line=number("written_line"),
            rate_per_s=float(record.get("rate_per_s", 0.0)),
            usage=usage,
            errors=tuple(json.loads(record.get("errors", "[]"))),
            output_file_id=record.get("output_file_id"),
            error_file_id=record.get("error_file_id"),
            times={n.removesuffix("_ms"): int(v) / 1000 for n, v in record.items() if n in _TIMES},
        )

    @property
    def ended(self) -> int:
        """Lines whose outcome is known."""
        return self.succeeded + self.failed + self.canceled

    @property
    def outstanding(self) -> int:
        """Jobs that are queued or running."""
        return self.jobs - (self.ended - self.faulty)

    def public(self) -> JsonObject:
        """The record as the API gives it; no secret and no storage key is in it."""
        rate = self._rate()
        left = self.total - self.ended
        eta_s = round(left / rate, 1) if rate and left and not self.status.terminal else None
        return {
            "id": self.id,
            "object": "batch",
            "status": self.status.value,
            "endpoint": self.spec.endpoint,
            "completion_window": self.spec.completion_window,
            "input_file_id": self.spec.input_file_id,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "request_counts": {"total": self.total, "completed": self.succeeded, "failed": self.failed},
            "counts": {
                "total": self.total,
                "queued": max(0, left - self.running),
                "running": self.running,
                "succeeded": self.succeeded,
                "failed": self.failed,
                "canceled": self.canceled,
            },
            "rate_per_s": round(rate, 3),
            "eta_s": eta_s,
            "usage": self.usage,
            "priority": self.spec.priority,
            "resumes": self.spec.resumes,
            "metadata": self.spec.metadata,
            "errors": {"object": "list", "data": list(self.errors)} if self.errors else None,
            **{f"{name}_at": self._moment(name) for name in _SHOWN_TIMES},
        }

    def _rate(self) -> float:
        """Lines a second: of late, and of the whole time once it has ended."""
        ended_at = self.times.get(self.status.value) if self.status.terminal else None
        end = self.times.get("finalizing") or ended_at
        if end is not None and "in_progress" in self.times:
            return self.ended / max(end - self.times["in_progress"], 0.001)
        return self.rate_per_s

    def _moment(self, name: str) -> int | None:
        moment = self.times.get(name)
        return int(moment) if moment is not None else None


_SHOWN_TIMES = (
    "created",
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "cancelling",
    "cancelled",
)
_TIMES = frozenset(f"{name}_ms" for name in _SHOWN_TIMES)
