"""What ``POST /v1/batches`` may say, as JSON or as a form with the lines as a file."""

from __future__ import annotations

from typing import IO, Annotated, Literal

from flask import Request
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from api.job_body import form_fields, read_form, read_object
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.batch import BATCH_EVENTS
from workers.job import WebhookTarget
from workers.job_request import MAX_METADATA_BYTES, WebhookTo, check_webhook
from workers.openai_body import parse_body
from workers.settings import Settings

Endpoint = Literal["/v1/jobs", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"]
BatchEvent = Literal["batch.progress", "batch.completed", "batch.failed", "batch.cancelled"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BatchWebhook(WebhookTo):
    """Who is told of each tenth of the batch, and of its end."""

    events: list[BatchEvent] = Field(
        default_factory=lambda: list(BATCH_EVENTS),  # type: ignore[arg-type]  # the same names, typed as plain text there
        min_length=1,
        max_length=len(BATCH_EVENTS),
    )

    def target(self) -> WebhookTarget:
        return WebhookTarget(self.url, tuple(dict.fromkeys(self.events)), self.secret)


class BatchRequest(_Strict):
    """Where the lines are, and what holds for all of them."""

    input_file_id: str | None = Field(default=None, max_length=64, description="Of an uploaded file.")
    input: str | None = Field(
        default=None, max_length=2048, description="Or `s3://bucket/key`, as in a job's `audio_url`."
    )
    endpoint: Endpoint | None = Field(
        default=None, description="Which lines may ask for nothing else. Unset: each says for itself."
    )
    completion_window: str = Field(
        default="24h", pattern=r"^\d{1,4}[hd]$", description="Kept for OpenAI's clients; nothing expires."
    )
    metadata: dict[Annotated[str, Field(max_length=128)], JsonValue] = Field(
        default_factory=dict, description="Yours; given back with the record. 16 KiB at most."
    )
    priority: int = Field(
        default=0,
        ge=-10,
        le=10,
        description="Among batches, higher goes first; their jobs stand behind all others.",
    )
    webhook: BatchWebhook | None = None


class BatchForm(BatchRequest):
    """The same fields as form fields, and the lines as the part ``file``."""

    file: bytes | None = Field(default=None, json_schema_extra={"format": "binary"})


class ResumeRequest(_Strict):
    """Which lines of a batch that has ended to take up."""

    only: Literal["failed", "unfinished"] | None = Field(
        default=None,
        description="`failed`, `unfinished` (canceled, or never begun), or, if unset, both.",
    )


def read_batch_request(
    request: Request, settings: Settings
) -> tuple[BatchRequest, tuple[IO[bytes], str | None] | None]:
    """The request, and the file if it came with it. Raises ``StagewaveError``."""
    if request.mimetype == "multipart/form-data":
        form, upload = read_form(request, settings)
        wanted = parse_body(BatchRequest, form_fields(form, BatchRequest.model_fields), from_form=True)
        sent = (upload.stream, upload.filename) if upload is not None else None
    elif request.mimetype == "application/json":
        wanted, sent = parse_body(BatchRequest, read_object(request, settings)), None
    else:
        raise StagewaveError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json or multipart/form-data"
        )
    sources = [source for source in (wanted.input_file_id, wanted.input, sent) if source]
    if len(sources) != 1:
        why = "a batch has one input" if sources else "a batch needs input_file_id, input, or a file"
        raise StagewaveError(ErrorCode.INVALID_REQUEST, why, field="input_file_id")
    if len(wanted.model_dump_json(include={"metadata"}).encode()) > MAX_METADATA_BYTES:
        raise StagewaveError(
            ErrorCode.INVALID_REQUEST, f"at most {MAX_METADATA_BYTES} bytes are kept", field="metadata"
        )
    if wanted.webhook is not None:
        check_webhook(wanted.webhook, settings)
    return wanted, sent


def read_resume_request(request: Request, settings: Settings) -> ResumeRequest:
    """No body is one that says nothing."""
    if not request.content_length and not request.mimetype:
        return ResumeRequest()
    return parse_body(ResumeRequest, read_object(request, settings))
