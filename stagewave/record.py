"""A job as the API tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]

TERMINAL = frozenset({"succeeded", "failed", "canceled"})


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
        error: JsonObject | None = self.record["error"]
        return error

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
