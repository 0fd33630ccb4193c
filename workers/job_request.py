"""The body of ``POST /v1/jobs``, JSON or form, and the rules it must meet before a job is made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task, own_speed_only
from workers.faults import Fault, InvalidRequest
from workers.job import DEFAULT_WEBHOOK_EVENTS, AudioSource, JobSpec, WebhookTarget
from workers.net_guard import URL_CHARS, check_url
from workers.settings import Settings
from workers.voice import DEFAULT_VOICE
from workers.webhook_sender import is_webhook_secret

MAX_METADATA_BYTES = 16 * 1024
MAX_INSTRUCTIONS_CHARS = 4_000
SEED_LIMIT = 2**32
JSON_FIELDS = frozenset({"metadata", "webhook", "sampling_params_list"})
"""Fields that a form carries as JSON text."""

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,3}")
_SHOWABLE_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,80}")

WebhookEvent = Literal["job.started", "job.first_audio", "job.succeeded", "job.failed", "job.canceled"]
ResponseFormat = Literal["wav", "pcm", "flac", "mp3", "opus"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WebhookTo(_Strict):
    """Where webhooks go."""

    url: str = Field(min_length=1, max_length=URL_CHARS, description="An http or https URL.")
    secret: str | None = Field(
        default=None,
        max_length=128,
        description="`whsec_` and base64 of 24 to 64 bytes. Unset: the server's own.",
    )


class WebhookRequest(WebhookTo):
    """Who is told when something becomes of the job."""

    events: list[WebhookEvent] = Field(
        default_factory=lambda: list(DEFAULT_WEBHOOK_EVENTS),  # type: ignore[arg-type]  # the same names, typed as plain text there
        min_length=1,
        max_length=5,
    )


class SamplingParams(_Strict):
    """How a stage draws its tokens; what is unset is the deploy config's."""

    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000)
    min_p: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    min_tokens: int | None = Field(default=None, ge=0, le=1_000_000)


class JobRequest(_Strict):
    """What a job is asked to do. ASR and S2ST hear audio; TTS and S2ST speak."""

    type: Literal["asr", "tts", "s2st"] = Field(
        description="`asr` speech to text, `tts` text to speech, `s2st` speech to speech (translated)."
    )
    model: str | None = Field(default=None, max_length=64, description="Unset: the model served here.")
    text: str | None = Field(default=None, description="TTS: what to say.")
    audio_url: str | None = Field(
        default=None,
        description="ASR, S2ST: `https://…`, `http://…`, `data:…`, or `s3://bucket/key`.",
    )
    voice: str = Field(default=DEFAULT_VOICE, max_length=64)
    language: str | None = Field(default=None, max_length=35, description="Of the input, such as `en`.")
    target_language: str | None = Field(default=None, max_length=35, description="S2ST: to speak in.")
    instructions: str | None = Field(default=None, max_length=MAX_INSTRUCTIONS_CHARS)
    speed: float = Field(
        default=1.0, ge=0.25, le=4, description="Other than 1 where the model can change it."
    )
    response_format: ResponseFormat = "wav"
    sample_rate_hz: int | None = Field(
        default=None, ge=8_000, le=48_000, description="Of the audio made. Unset: the model's own."
    )
    loudness: float | None = Field(
        default=None,
        ge=-40,
        le=-10,
        description="Brings the speech to this loudness, in LUFS (EBU R 128). Unset: as the model speaks.",
    )
    word_timestamps: bool = Field(default=False, description="ASR, S2ST: times of each word.")
    keep_timing: bool = Field(
        default=False, description="S2ST: what is spoken begins where it did in the source, as for dubbing."
    )
    mode: Literal["auto", "async_chunk", "sequential"] | None = Field(
        default=None,
        description="`async_chunk` speaks while it thinks, `sequential` after, `auto` as somebody listens."
        " Unset: the deploy config's, else `auto`.",
    )
    live: bool = Field(default=False, description="Somebody will listen to the audio while it is made.")
    priority: int = Field(default=0, ge=-10, le=10, description="Higher goes first.")
    seed: int = Field(default=42, ge=0, lt=SEED_LIMIT)
    sampling_params_list: list[SamplingParams] = Field(
        default_factory=list, max_length=2, description="One for each stage, the Thinker's first."
    )
    deadline_s: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Seconds in which the job must end."
    )
    metadata: dict[Annotated[str, Field(max_length=128)], JsonValue] = Field(
        default_factory=dict, description="Yours; given back with the record. 16 KiB at most."
    )
    webhook: WebhookRequest | None = None

    @property
    def hears(self) -> bool:
        """Whether the job needs audio."""
        return self.type != "tts"


KNOWN_FIELDS = frozenset(JobRequest.model_fields)


class UploadForm(JobRequest):
    """The same fields as form fields, and the audio as the part ``file``."""

    file: bytes | None = Field(default=None, json_schema_extra={"format": "binary"})


def parse_request(fields: Mapping[str, JsonValue], *, from_form: bool) -> JobRequest:
    """Raises ``InvalidRequest`` with one fault for each field that is wrong. A form's values are text,
    so they are read as numbers and booleans where those are wanted; JSON's must be them."""
    try:
        return JobRequest.model_validate(dict(fields), strict=not from_form)
    except ValidationError as error:
        faults = [fault_of(item["loc"], item["type"], item["msg"]) for item in error.errors()]
        raise InvalidRequest(faults) from None


def check_rules(request: JobRequest, deploy: DeployConfig, settings: Settings) -> None:
    """What no schema says: raises ``StagewaveError`` naming the field."""
    task = Task(request.type)
    if request.model not in (None, "", deploy.model):
        raise _refused(ErrorCode.MODEL_UNKNOWN, "model", "this server does not serve that model")
    if task is not Task.ASR and not deploy.speaks:
        raise _refused(ErrorCode.INVALID_REQUEST, "type", "this server has no Token2Wav: it only takes asr")
    check_speed(request.speed, deploy)
    _check_fields_fit(request, task)
    if task is Task.TTS:
        _check_text(request.text, deploy.limits.text_chars)
    for name in ("language", "target_language"):
        value = getattr(request, name)
        if value is not None and not _LANGUAGE.fullmatch(value):
            raise _refused(
                ErrorCode.LANGUAGE_UNSUPPORTED, name, "this is no language tag such as en or zh-CN"
            )
    if request.deadline_s is not None and request.deadline_s > settings.job_deadline_s:
        raise _refused(
            ErrorCode.INVALID_REQUEST,
            "deadline_s",
            f"at most {settings.job_deadline_s:g} seconds are allowed",
        )
    if len(json.dumps(request.metadata, ensure_ascii=False).encode()) > MAX_METADATA_BYTES:
        raise _refused(
            ErrorCode.INVALID_REQUEST, "metadata", f"at most {MAX_METADATA_BYTES} bytes are kept"
        )
    if request.webhook is not None:
        check_webhook(request.webhook, settings)


def check_speed(speed: float, deploy: DeployConfig) -> None:
    least, most = deploy.speeds
    if not least <= speed <= most:
        if least == most:
            raise own_speed_only()
        raise _refused(
            ErrorCode.INVALID_REQUEST, "speed", f"this model speaks at a speed of {least:g} to {most:g}"
        )


def spec_of(request: JobRequest, deploy: DeployConfig, audio: AudioSource | None) -> JobSpec:
    """The job to make of a request that has met the rules."""
    default_mode = {True: "async_chunk", False: "sequential", None: "auto"}[deploy.async_chunk]
    webhook = request.webhook
    return JobSpec(
        type=Task(request.type),
        model=deploy.model,
        mode=request.mode or default_mode,  # type: ignore[arg-type]  # one of the three modes
        text=request.text or "",
        audio=audio,
        language=request.language,
        target_language=request.target_language,
        instructions=request.instructions or None,
        voice=request.voice,
        speed=request.speed,
        response_format=request.response_format,
        sample_rate_hz=request.sample_rate_hz,
        loudness=request.loudness,
        word_timestamps=request.word_timestamps,
        keep_timing=request.keep_timing,
        live=request.live,
        seed=request.seed,
        sampling_params_list=tuple(
            params.model_dump(exclude_none=True) for params in request.sampling_params_list
        ),
        deadline_s=request.deadline_s,
        metadata=request.metadata,
        priority=request.priority,
        webhook=WebhookTarget(webhook.url, tuple(dict.fromkeys(webhook.events)), webhook.secret)
        if webhook
        else None,
    )


def _check_fields_fit(request: JobRequest, task: Task) -> None:
    """A field that the task has no use for is a misunderstanding; its default value is none."""
    if task is Task.TTS:
        needless: dict[str, object] = {
            "audio_url": None,
            "target_language": None,
            "word_timestamps": False,
            "keep_timing": False,
        }
    else:
        needless = {"text": None}
        if task is Task.ASR:
            needless |= {
                "voice": DEFAULT_VOICE,
                "speed": 1.0,
                "response_format": "wav",
                "sample_rate_hz": None,
                "loudness": None,
                "target_language": None,
                "keep_timing": False,
                "live": False,
            }
    for name, default in needless.items():
        if getattr(request, name) not in (default, ""):
            raise _refused(
                ErrorCode.INVALID_REQUEST, name, f"a job of type {task} does not take this field"
            )


def _check_text(text: str | None, limit: int) -> None:
    if text is None:
        raise _refused(ErrorCode.INVALID_REQUEST, "text", "a job of type tts needs text")
    if len(text) > limit:
        raise _refused(ErrorCode.TEXT_TOO_LONG, "text", f"at most {limit} characters are spoken")
    if not any(character.isalnum() for character in text):
        raise _refused(ErrorCode.TEXT_EMPTY, "text", "there is no letter and no digit to speak")


def check_webhook(webhook: WebhookTo, settings: Settings) -> None:
    """Raises ``StagewaveError`` naming the field."""
    check_url(settings, webhook.url, "webhook.url")
    if webhook.secret is None:
        if settings.webhook_secret is None:
            raise _refused(
                ErrorCode.INVALID_REQUEST,
                "webhook.secret",
                "this server has no secret of its own: give one",
            )
        return
    if not is_webhook_secret(webhook.secret):
        raise _refused(
            ErrorCode.INVALID_REQUEST, "webhook.secret", "it must be whsec_ and base64 of 24 to 64 bytes"
        )


def _refused(code: ErrorCode, field: str, why: str) -> StagewaveError:
    return StagewaveError(code, why, field=field)


def fault_of(location: tuple[int | str, ...], kind: str, message: str) -> Fault:
    """From one of pydantic's errors: its ``loc``, ``type`` and ``msg``."""
    name = ".".join(str(part) for part in location if part != "[key]")
    if not _SHOWABLE_FIELD.fullmatch(name):
        name = "(unknown)"
    text = "there is no such field" if kind == "extra_forbidden" else message[:1].lower() + message[1:]
    return Fault(name, text)
