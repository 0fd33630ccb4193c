"""What the API tells of jobs, batches and voices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

JsonObject = dict[str, Any]
T = TypeVar("T")

TERMINAL = frozenset({"succeeded", "failed", "canceled"})
BATCH_ENDS = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Job:
    """One job's record at one moment. ``record`` is the whole of it, as the API gave it."""

    record: JsonObject

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def type(self) -> str:
        return str(self.record["type"])

    @property
    def status(self) -> str:
        return str(self.record["status"])

    @property
    def stage(self) -> str | None:
        stage: str | None = self.record["stage"]
        return stage

    @property
    def finished(self) -> bool:
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    @property
    def text(self) -> str:
        """The transcript (ASR), or what is spoken (TTS, S2ST); empty until the job has succeeded."""
        return str((self.record["result"] or {}).get("text") or "")

    @property
    def has_audio(self) -> bool:
        return self.succeeded and (self.record["result"] or {}).get("audio") is not None

    @property
    def error(self) -> JsonObject | None:
        """``code``, ``message``, ``stage``, ``retryable``; None unless it failed."""
        error: JsonObject | None = self.record["error"]
        return error

    @property
    def usage(self) -> JsonObject:
        """Tokens read and made, and ``audio_in_s`` and ``audio_out_s``."""
        return dict(self.record["usage"])

    @property
    def timings(self) -> JsonObject:
        """``queue_wait_ms``, ``ttfp_ms``, ``e2e_ms``, ``rtf``, and the moments they come from."""
        return dict(self.record["timings"])


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a job; ``id`` resumes after it."""

    id: str
    name: str
    data: JsonObject


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch's record at one moment. ``record`` is the whole of it, as the API gave it."""

    record: JsonObject

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def status(self) -> str:
        return str(self.record["status"])

    @property
    def finished(self) -> bool:
        return self.status in BATCH_ENDS

    @property
    def counts(self) -> dict[str, int]:
        """Lines: ``total``, ``queued``, ``running``, ``succeeded``, ``failed``, ``canceled``."""
        return dict(self.record["counts"])

    @property
    def rate_per_s(self) -> float:
        """Lines that ended in a second."""
        return float(self.record["rate_per_s"])

    @property
    def eta_s(self) -> float | None:
        """How much longer it takes at that rate."""
        eta: float | None = self.record["eta_s"]
        return eta


@dataclass(frozen=True, slots=True)
class BatchLine:
    """What became of one request of a batch."""

    record: JsonObject

    @property
    def line(self) -> int:
        """Its place in the input, from 1."""
        return int(self.record["line"])

    @property
    def custom_id(self) -> str | None:
        custom_id: str | None = self.record["custom_id"]
        return custom_id

    @property
    def job_id(self) -> str | None:
        job_id: str | None = self.record.get("job_id")
        return job_id

    @property
    def body(self) -> Any:  # noqa: ANN401  # what the endpoint of the request answers with
        """What its endpoint answers with; None when it failed."""
        response = self.record["response"]
        return response["body"] if response else None

    @property
    def error(self) -> JsonObject | None:
        """``code`` and ``message``; None when it succeeded."""
        error: JsonObject | None = self.record["error"]
        return error


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of the server."""

    record: JsonObject

    @property
    def id(self) -> str | None:
        """None: one of the server's own."""
        voice_id: str | None = self.record["id"]
        return voice_id

    @property
    def name(self) -> str:
        """What a job's ``voice`` names."""
        return str(self.record["name"])

    @property
    def status(self) -> str:
        """``preparing``, ``ready`` or ``failed``."""
        return str(self.record["status"])


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list, newest first; ``next_cursor`` is the ``after`` of the next page, if any."""

    items: tuple[T, ...]
    next_cursor: str | None
