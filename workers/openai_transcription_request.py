"""What OpenAI's ``/v1/audio/transcriptions`` is asked for, the job of it, and the body of its answer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from stage_pipeline.audio.transcript import segments_from_json, to_srt, to_vtt
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.stages import Segment
from workers.job import JsonObject
from workers.openai_body import UnsupportedValue, model_of, parse_body

TRANSCRIPTION_FIELDS = {"instructions": "prompt"}
"""What fields of a job are called here."""
_FRAMES_PER_S = 100
"""Of Whisper's spectrogram, which ``seek`` counts in."""


class TranscriptionRequest(BaseModel):
    """As OpenAI's; a translation may have the same fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="Unset: the model served here.")
    language: str | None = Field(default=None, description="Of the speech, such as `en`. Unset: found out.")
    prompt: str | None = Field(default=None, description="To the model; the embedded engine takes none.")
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json", "diarized_json"] = Field(
        default="json", description="`diarized_json` is not offered."
    )
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        default_factory=list, description="As `timestamp_granularities[]`, of `verbose_json`."
    )
    include: list[Literal["logprobs"]] = Field(default_factory=list, description="Not offered.")
    chunking_strategy: Literal["auto"] | None = Field(default=None, description="How else is not offered.")
    stream: bool = Field(default=False, description="Text as it comes, as events.")

    @property
    def words(self) -> bool:
        return "word" in self.timestamp_granularities


def parse_transcription(
    fields: Mapping[str, JsonValue], deploys: Sequence[DeployConfig], *, from_form: bool
) -> TranscriptionRequest:
    """Raises ``StagewaveError`` naming the field that is wrong or asks for what is not done here."""
    wanted = parse_body(TranscriptionRequest, fields, from_form=from_form)
    wanted = wanted.model_copy(update={"model": model_of(wanted.model, deploys)})
    if wanted.response_format == "diarized_json":
        raise UnsupportedValue("response_format", "who speaks when is not found out here")
    if wanted.include:
        raise UnsupportedValue("include", "log probabilities are not offered")
    if wanted.timestamp_granularities and wanted.response_format != "verbose_json":
        raise UnsupportedValue("timestamp_granularities", "this needs the response_format verbose_json")
    if wanted.stream and wanted.response_format not in ("json", "text"):
        raise UnsupportedValue("stream", "text is streamed with the response_format json or text only")
    return wanted


def transcription_job(wanted: TranscriptionRequest) -> JsonObject:
    """Fields of a ``JobRequest`` but the audio's; None is unset."""
    sampling: list[JsonValue] = []
    if wanted.temperature is not None:
        sampling.append({"temperature": wanted.temperature})
    return {
        "type": "asr",
        "model": wanted.model,
        "language": wanted.language,
        "instructions": wanted.prompt,
        "word_timestamps": wanted.words,
        "sampling_params_list": sampling,
    }


def transcription_body(
    wanted: TranscriptionRequest, transcript: JsonObject, translated: bool
) -> JsonObject | str:
    """The answer in the format asked for, made of a job's transcript object."""
    segments = segments_from_json(transcript)
    match wanted.response_format:
        case "text":
            return f"{transcript['text']}\n"
        case "srt":
            return to_srt(segments)
        case "vtt":
            return to_vtt(segments)
    usage: JsonObject = {"type": "duration", "seconds": transcript["duration_s"]}
    answer: JsonObject = {"text": transcript["text"], "usage": usage}
    if wanted.response_format == "verbose_json":
        answer["task"] = "translate" if translated else "transcribe"
        answer["language"] = "english" if translated else transcript["language"]
        answer["duration"] = transcript["duration_s"]
        if not wanted.words or "segment" in wanted.timestamp_granularities:
            answer["segments"] = [
                _segment(number, segment, wanted.temperature or 0.0)
                for number, segment in enumerate(segments)
            ]
        if wanted.words:
            answer["words"] = [
                {"word": word.text.strip(), "start": word.start_s, "end": word.end_s}
                for segment in segments
                for word in segment.words
            ]
    return answer


def _segment(number: int, segment: Segment, temperature: float) -> JsonObject:
    written = segment.text.encode()
    return {
        "id": number,
        "seek": int(segment.start_s * _FRAMES_PER_S),
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "tokens": [],
        "temperature": temperature,
        "avg_logprob": 0.0,
        "compression_ratio": round(len(written) / len(zlib.compress(written)), 4),
        "no_speech_prob": 0.0,
    }
