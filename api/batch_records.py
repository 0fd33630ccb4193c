"""What files and batches are shown as, for the OpenAPI document, and what tests hold answers to."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FileRecord(_Record):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]


class FileList(_Record):
    """One page, as OpenAI's clients walk them."""

    object: Literal["list"]
    data: list[FileRecord]
    first_id: str | None
    last_id: str | None = Field(description="`after` of the next page.")
    has_more: bool


class DeletedFile(_Record):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


class RequestCounts(_Record):
    """As OpenAI counts."""

    total: int
    completed: int
    failed: int


class LineCounts(_Record):
    total: int = Field(description="Lines that ask for something; 0 until they have been counted.")
    queued: int
    running: int
    succeeded: int
    failed: int
    canceled: int


class BatchUsage(_Record):
    """Of all its jobs that have ended."""

    prompt_tokens: int
    text_tokens: int
    audio_tokens: int
    audio_in_s: float
    audio_out_s: float
    engine_s: float = Field(description="How long engines have worked on it, in seconds of one slot.")


class BatchFault(_Record):
    code: str
    message: str
    field: str | None = None


class BatchFaults(_Record):
    object: Literal["list"]
    data: list[BatchFault]


class BatchRecord(_Record):
    """A batch at one moment. Times are Unix seconds."""

    id: str
    object: Literal["batch"]
    status: Literal[
        "validating", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"
    ]
    endpoint: str | None
    completion_window: str
    input_file_id: str | None
    output_file_id: str | None = Field(description="Once it has ended; null when no line succeeded.")
    error_file_id: str | None = Field(description="Once it has ended; null when no line failed.")
    request_counts: RequestCounts
    counts: LineCounts
    rate_per_s: float = Field(description="Lines that ended in a second: of late, or of the whole time.")
    eta_s: float | None = Field(description="How much longer it takes at that rate.")
    usage: BatchUsage
    priority: int
    resumes: str | None = Field(description="The batch whose lines it takes up.")
    metadata: dict[str, JsonValue]
    errors: BatchFaults | None = Field(description="Why the whole batch failed.")
    created_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None


class BatchList(_Record):
    """One page, as OpenAI's clients walk them."""

    object: Literal["list"]
    data: list[BatchRecord]
    first_id: str | None
    last_id: str | None = Field(description="`after` of the next page.")
    has_more: bool
