"""What the OpenAI-compatible paths answer with, as models: for the OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class OpenAiFault(_Record):
    message: str
    type: Literal["invalid_request_error", "authentication_error", "rate_limit_error", "server_error"]
    param: str | None = Field(description="The field at fault.")
    code: str = Field(description="Stable: act on this.")


class OpenAiError(_Record):
    """An error in OpenAI's form."""

    error: OpenAiFault


class OpenAiModel(_Record):
    id: str
    object: Literal["model"]
    created: int = Field(description="When this server began to serve it.")
    owned_by: str
    tasks: list[Literal["asr", "tts", "s2st"]] = Field(description="The types of job that it does.")
    ready: bool = Field(description="Whether each of its pools has a worker that is ready.")


class OpenAiModelList(_Record):
    object: Literal["list"]
    data: list[OpenAiModel]


class DurationUsage(_Record):
    type: Literal["duration"]
    seconds: float


class OpenAiWord(_Record):
    word: str
    start: float
    end: float


class OpenAiSegment(_Record):
    """As Whisper's; what the engine does not tell is 0 or empty."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class OpenAiTranscription(BaseModel):
    """`json` has text and usage, `verbose_json` all."""

    text: str
    usage: DurationUsage
    task: Literal["transcribe", "translate"] | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[OpenAiSegment] | None = None
    words: list[OpenAiWord] | None = None


class ChatAudio(_Record):
    id: str
    data: str = Field(description="Base64 of the audio, in the format asked for.")
    expires_at: int
    transcript: str


class ChatAnswer(_Record):
    role: Literal["assistant"]
    content: str
    refusal: None
    audio: ChatAudio | None


class ChatChoice(_Record):
    index: int
    message: ChatAnswer
    logprobs: None
    finish_reason: Literal["stop", "length"]


class CompletionTokens(_Record):
    audio_tokens: int


class ChatUsage(_Record):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokens


class ChatCompletion(_Record):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
