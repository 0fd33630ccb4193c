"""What the API answers with, as models: the OpenAPI document shows them, and tests hold answers to them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class InputAudio(_Record):
    kind: Literal["url", "upload", "s3"]
    size_bytes: int | None = None


class JobInput(_Record):
    text: str | None = None
    audio: InputAudio | None = None


class Usage(BaseModel):
    """Filled as the job goes on."""

    prompt_tokens: int | None = None
    text_tokens: int | None = None
    audio_tokens: int | None = None
    audio_in_s: float | None = None
    audio_out_s: float | None = None


class Timings(_Record):
    created_at: str
    started_at: str | None
    first_audio_at: str | None
    finished_at: str | None
    queue_wait_ms: float | None = Field(description="From POST to the start of the first stage.")
    ttfp_ms: float | None = Field(description="From POST to the first packet of audio.")
    e2e_ms: float | None = Field(description="From POST to the end.")
    rtf: float | None = Field(description="Processing time over audio time.")


class ResultAudio(BaseModel):
    url: str
    format: str
    content_type: str
    sample_rate_hz: int
    duration_s: float
    size_bytes: int


class JobResult(BaseModel):
    text: str | None = Field(default=None, description="ASR: the transcript. S2ST: what was spoken.")
    source_text: str | None = Field(default=None, description="S2ST: what was heard.")
    language: str | None = None
    finish_reason: str | None = Field(default=None, description="`stop`, or `length` when it was cut.")
    audio: ResultAudio | None = None
    transcript_url: str | None = None


class JobError(_Record):
    code: str
    message: str
    stage: str | None
    retryable: bool


class JobRecord(_Record):
    """A job at one moment."""

    id: str
    type: Literal["asr", "tts", "s2st"]
    model: str
    mode: Literal["auto", "async_chunk", "sequential"]
    status: Literal["queued", "running", "succeeded", "failed", "canceled"]
    stage: Literal["fetch", "thinker", "token2wav"] | None
    input: JobInput
    options: dict[str, JsonValue]
    metadata: dict[str, JsonValue]
    priority: int
    attempts: dict[str, int] = Field(description="How often each stage was begun.")
    usage: Usage
    timings: Timings
    result: JobResult | None
    error: JobError | None
    created_at: str
    expires_at: str | None = Field(description="When the record and its objects are removed.")
    batch_id: str | None


class JobList(_Record):
    data: list[JobRecord]
    next_cursor: str | None = Field(description="`after` of the next page; null on the last one.")


class VoiceError(_Record):
    code: str
    message: str


class VoiceRecord(_Record):
    """A voice at one moment. One of the server's own has a name and no history."""

    id: str | None
    name: str
    built_in: bool
    model: str
    status: Literal["preparing", "ready", "failed"]
    error: VoiceError | None
    duration_s: float | None = Field(description="Of the recording.")
    warnings: list[str] = Field(description="What may make the voice worse than it could be.")
    created_at: str | None


class VoiceList(_Record):
    data: list[VoiceRecord]
    next_cursor: str | None = Field(description="`after` of the next page; null on the last one.")


class DeliveryTry(_Record):
    at: str
    status: int | None
    error: str | None
    elapsed_ms: float


class Delivery(_Record):
    """One webhook; its id is the `webhook-id` of every try."""

    id: str
    event: str
    state: Literal["due", "delivered", "failed"]
    created_at: str
    tries: int
    log: list[DeliveryTry]


class DeliveryList(_Record):
    data: list[Delivery]


class Word(_Record):
    text: str
    start_s: float
    end_s: float
    probability: float


class TranscriptSegment(_Record):
    text: str
    start_s: float
    end_s: float
    words: list[Word]


class Transcript(BaseModel):
    text: str
    source_text: str | None = None
    language: str | None
    duration_s: float
    segments: list[TranscriptSegment]


class Health(_Record):
    status: Literal["ok"]


class Check(_Record):
    ok: bool
    detail: str | None = None
    since: str | None = Field(default=None, description="Of a pool that is missing: since when.")


class Readiness(_Record):
    status: Literal["ready", "not_ready"]
    checks: dict[str, Check]


class FieldFault(_Record):
    field: str
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(description="Where the code is explained.")
    title: str
    status: int
    detail: str
    message: str | None = Field(
        default=None, description="`detail` again, of files and batches: OpenAI's clients show it."
    )
    code: str = Field(description="Stable: act on this.")
    retryable: bool
    request_id: str | None
    field: str | None = Field(default=None, description="The field at fault.")
    errors: list[FieldFault] | None = Field(default=None, description="All the fields at fault.")
