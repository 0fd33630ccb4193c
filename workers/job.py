"""A job: what was asked for (``JobSpec``) and what became of it (``Job``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue, TypeAdapter

from stage_pipeline.stages import Task
from workers.ids import is_id, new_id
from workers.states import Stage, Status, pool_of, stages_of

JsonObject = dict[str, JsonValue]
Mode = Literal["auto", "async_chunk", "sequential"]

_PREFIX = "job_"
WEBHOOK_EVENTS = ("job.started", "job.first_audio", "job.succeeded", "job.failed", "job.canceled")
DEFAULT_WEBHOOK_EVENTS = ("job.succeeded", "job.failed", "job.canceled")


def new_job_id() -> str:
    """``job_`` and a ULID: ids sort by creation."""
    return new_id(_PREFIX)


def is_job_id(text: str) -> bool:
    return is_id(text, _PREFIX)


@dataclass(frozen=True, slots=True)
class AudioSource:
    """Where a job's audio comes from: fetched from ``url``, or already the object ``key``."""

    kind: Literal["url", "upload", "s3"]
    url: str | None = None
    key: str | None = None
    size_bytes: int | None = None
    filename: str | None = None


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Who is told, of what. ``secret`` overrides the system's signing secret."""

    url: str
    events: tuple[str, ...] = DEFAULT_WEBHOOK_EVENTS
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class BatchLine:
    """The line of a batch's input that a job was made of, and what the form of its answer depends on."""

    number: int
    custom_id: str | None = None
    url: str = "/v1/jobs"
    asked: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a client asked for; it never changes once the job is made."""

    type: Task
    model: str
    mode: Mode = "auto"
    text: str = ""
    audio: AudioSource | None = None
    language: str | None = None
    target_language: str | None = None
    instructions: str | None = None
    voice: str = "default"
    speed: float = 1.0
    response_format: str = "wav"
    sample_rate_hz: int | None = None
    """Of the audio made; unset: the model's own."""
    loudness: float | None = None
    """Target of the audio made, in LUFS."""
    word_timestamps: bool = False
    keep_timing: bool = False
    """S2ST: what is spoken stands where it stood in the source, as for dubbing."""
    live: bool = False
    """The client means to listen while the audio is made."""
    seed: int = 42
    sampling_params_list: tuple[dict[str, float | int], ...] = ()
    deadline_s: float | None = None
    metadata: JsonObject = field(default_factory=dict)
    priority: int = 0
    batch_id: str | None = None
    line: BatchLine | None = None
    webhook: WebhookTarget | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages_of(self.type, fetches=self.audio is not None and self.audio.kind == "url")

    def pool(self, stage: Stage) -> str:
        return pool_of(stage, self.model)

    def next_stage(self, stage: Stage) -> Stage | None:
        following = self.stages[self.stages.index(stage) + 1 :]
        return following[0] if following else None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> JobSpec:
        return _SPEC.validate_json(text)


_SPEC: TypeAdapter[JobSpec] = TypeAdapter(JobSpec)


@dataclass(frozen=True, slots=True)
class Job:
    """A job's record at one moment. Times are Unix seconds by the broker's clock."""

    id: str
    spec: JobSpec
    status: Status
    stage: Stage | None
    attempts: dict[str, int]
    created_at: float
    started_at: float | None = None
    first_audio_at: float | None = None
    finished_at: float | None = None
    expires_at: float | None = None
    usage: JsonObject = field(default_factory=dict)
    result: JsonObject | None = None
    error: JsonObject | None = None
    streamed: bool = False
    """Token2Wav was started beside the Thinker."""
    voice_id: str | None = None
    """The voice that ``spec.voice`` named when the job was made, if a client made it."""

    @classmethod
    def from_hash(cls, record: Mapping[str, str]) -> Job:
        """From the fields of the Redis hash; ``lua/prelude.lua`` says what they are."""

        def seconds(name: str) -> float | None:
            return int(record[name]) / 1000 if name in record else None

        def loaded(name: str) -> JsonObject | None:
            return json.loads(record[name]) if name in record else None

        return cls(
            id=record["id"],
            spec=JobSpec.from_json(record["spec"]),
            status=Status(record["status"]),
            stage=Stage(record["stage"]) if "stage" in record else None,
            attempts={s.value: int(record[f"attempt:{s}"]) for s in Stage if f"attempt:{s}" in record},
            created_at=int(record["created_ms"]) / 1000,
            started_at=seconds("started_ms"),
            first_audio_at=seconds("first_audio_ms"),
            finished_at=seconds("finished_ms"),
            expires_at=seconds("expires_ms"),
            usage=loaded("usage") or {},
            result=loaded("result"),
            error=loaded("error"),
            streamed=record.get("streamed") == "1",
            voice_id=record.get("voice_id"),
        )

    def public(self) -> JsonObject:
        """The record as the API gives it; no secret and no storage key is in it."""
        spec = self.spec
        source: JsonObject = {}
        if spec.text:
            source["text"] = spec.text
        if spec.audio is not None:
            source["audio"] = {"kind": spec.audio.kind, "size_bytes": spec.audio.size_bytes}
        return {
            "id": self.id,
            "type": spec.type.value,
            "model": spec.model,
            "mode": spec.mode,
            "status": self.status.value,
            "stage": self.stage.value if self.stage else None,
            "input": source,
            "options": self._public_options(),
            "metadata": spec.metadata,
            "priority": spec.priority,
            "attempts": dict(self.attempts),
            "usage": self.usage,
            "timings": self._timings(),
            "result": self._public_result(),
            "error": self.error,
            "created_at": iso8601(self.created_at),
            "expires_at": iso8601(self.expires_at),
            "batch_id": spec.batch_id,
        }

    def _public_options(self) -> JsonObject:
        spec = self.spec
        options: JsonObject = {"seed": spec.seed, "live": spec.live}
        for name in ("language", "target_language", "instructions", "deadline_s"):
            if (value := getattr(spec, name)) is not None:
                options[name] = value
        if spec.type is not Task.ASR:
            options |= {"voice": spec.voice, "speed": spec.speed, "response_format": spec.response_format}
            for name in ("sample_rate_hz", "loudness"):
                if (value := getattr(spec, name)) is not None:
                    options[name] = value
        if spec.type is not Task.TTS:
            options["word_timestamps"] = spec.word_timestamps
        if spec.type is Task.S2ST:
            options["keep_timing"] = spec.keep_timing
        if spec.sampling_params_list:
            options["sampling_params_list"] = [dict(params) for params in spec.sampling_params_list]
        if spec.webhook is not None:
            options["webhook"] = {"url": spec.webhook.url, "events": list(spec.webhook.events)}
        return options

    def _public_result(self) -> JsonObject | None:
        if self.result is None:
            return None
        shown = {name: value for name, value in self.result.items() if not name.endswith("_key")}
        if isinstance(audio := shown.get("audio"), dict):
            shown["audio"] = {"url": f"/v1/jobs/{self.id}/audio", **audio}
        if "transcript_key" in self.result:
            shown["transcript_url"] = f"/v1/jobs/{self.id}/transcript"
        return shown

    def _timings(self) -> JsonObject:
        def since_created(moment: float | None) -> JsonValue:
            return None if moment is None else round((moment - self.created_at) * 1000, 1)

        return {
            "created_at": iso8601(self.created_at),
            "started_at": iso8601(self.started_at),
            "first_audio_at": iso8601(self.first_audio_at),
            "finished_at": iso8601(self.finished_at),
            "queue_wait_ms": since_created(self.started_at),
            "ttfp_ms": since_created(self.first_audio_at),
            "e2e_ms": since_created(self.finished_at),
            "rtf": self._real_time_factor(),
        }

    def _real_time_factor(self) -> JsonValue:
        """Processing time over audio time: of the audio made, else (ASR) of the audio heard."""
        audio_s = self.usage.get("audio_out_s") or self.usage.get("audio_in_s")
        if self.started_at is None or self.finished_at is None or not isinstance(audio_s, float | int):
            return None
        return round((self.finished_at - self.started_at) / audio_s, 4) if audio_s else None


def iso8601(moment: float | None) -> str | None:
    """Unix seconds as UTC with milliseconds."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
