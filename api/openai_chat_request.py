"""The body of ``/v1/chat/completions``, and the job that it means: to hear, to speak, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers.openai_body import UnsupportedValue, VoiceId, voice_name
from workers.voice import DEFAULT_VOICE

TTS_START = "<tts_start>"
"""Step-Audio2's token that begins speech: at the end of the last message it asks for audio."""
IGNORED = frozenset(
    {"parallel_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user"}
)
"""What OpenAI's own service is told by these, nobody here needs to know."""
_IGNORED_SAMPLING = frozenset(
    {"detokenize", "skip_special_tokens", "spaces_between_special_tokens", "stop", "stop_token_ids"}
)
"""What vLLM is told about text that it does not make here; the model's own end tokens stop it."""


class _Part(BaseModel):
    # Of the parts and turns that clients send back to us, much is there that we never look at.
    model_config = ConfigDict(extra="ignore", frozen=True)


class TextPart(_Part):
    type: Literal["text"]
    text: str


class AudioUrl(_Part):
    url: str = Field(min_length=1)


class AudioUrlPart(_Part):
    type: Literal["audio_url"]
    audio_url: AudioUrl = Field(description="`https://…`, `http://…`, or `data:…`.")


class InputAudio(_Part):
    data: str = Field(min_length=1, description="Base64 of the audio.")
    format: str | None = Field(default=None, description="Found out from the audio itself.")


class InputAudioPart(_Part):
    type: Literal["input_audio"]
    input_audio: InputAudio


Part = Annotated[TextPart | AudioUrlPart | InputAudioPart, Field(discriminator="type")]


class Message(_Part):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None

    @property
    def parts(self) -> Sequence[Part]:
        if isinstance(self.content, str):
            return (TextPart(type="text", text=self.content),)
        return self.content or ()

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


class ChatAudioRequest(BaseModel):
    """How the answer sounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    voice: str | VoiceId = DEFAULT_VOICE
    format: Literal["wav", "pcm16", "pcm", "flac", "mp3", "opus", "aac"] = Field(
        default="wav", description="`aac` is not offered."
    )


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    include_usage: bool = False


class ChatRequest(BaseModel):
    """As OpenAI's, with what vLLM-Omni's clients add."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="Unset: the model served here.")
    messages: list[Message] = Field(
        min_length=1, description="The last user message is worked on; the system's are instructions."
    )
    modalities: list[Literal["text", "audio"]] = Field(default_factory=list)
    audio: ChatAudioRequest = ChatAudioRequest()
    language: str | None = Field(default=None, description="Of the input.")
    target_language: str | None = Field(default=None, description="To speak in.")
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    continue_final_message: bool = Field(default=False, description="The last message is `<tts_start>`.")
    add_generation_prompt: bool = Field(default=True, description="Changes nothing.")
    sampling_params_list: list[dict[str, JsonValue]] = Field(
        default_factory=list,
        description="One for each stage, the Thinker's first; over what stands beside.",
    )
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: Literal[1] = 1
    logprobs: Literal[False] = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def form(self) -> str:
        """The audio's format by our name."""
        return "pcm" if self.audio.format == "pcm16" else self.audio.format

    def sampling(self) -> list[JsonValue]:
        """For each stage that anything is asked of."""
        asked = {name: getattr(self, name) for name in _SAMPLING}
        asked["max_tokens"] = self.max_completion_tokens or self.max_tokens
        beside: dict[str, JsonValue] = {name: value for name, value in asked.items() if value is not None}
        stages = [
            {k: v for k, v in stage.items() if k not in _IGNORED_SAMPLING and k != "seed"}
            for stage in self.sampling_params_list
        ]
        if not beside:
            return list(stages)
        return [{**beside, **stages[0]}, *stages[1:]] if stages else [beside]

    def job_seed(self) -> JsonValue:
        first = self.sampling_params_list[0] if self.sampling_params_list else {}
        return first.get("seed", self.seed)


_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the last user message asks for."""

    task: Task
    text: str
    instructions: str
    audio_url: str | None = None


def turn_of(wanted: ChatRequest) -> Turn:
    """Raises ``StagewaveError`` for a conversation that means no job."""
    speaks = "audio" in wanted.modalities or wanted.messages[-1].text.rstrip().endswith(TTS_START)
    user = next((message for message in reversed(wanted.messages) if message.role == "user"), None)
    if user is None:
        raise _refused("there is no user message")
    _check_last(wanted)
    said = user.text.rstrip().removesuffix(TTS_START).rstrip()
    system = "\n".join(m.text for m in wanted.messages if m.role in ("system", "developer") and m.text)
    heard = [url for part in user.parts if (url := _url_of(part)) is not None]
    if len(heard) > 1:
        raise UnsupportedValue("messages", "one audio at a time is heard")
    if heard:
        asked = "\n".join(text for text in (system, said) if text)
        return Turn(Task.S2ST if speaks else Task.ASR, "", asked, heard[0])
    if not speaks:
        raise UnsupportedValue(
            "messages",
            f"text can only be spoken: ask for audio in modalities, end with {TTS_START}, or send audio",
        )
    return Turn(Task.TTS, said, system)


def job_fields(wanted: ChatRequest, turn: Turn) -> dict[str, JsonValue]:
    """As fields of a ``JobRequest``."""
    fields: dict[str, JsonValue] = {
        "type": turn.task.value,
        "model": wanted.model,
        "instructions": turn.instructions,
        "language": wanted.language,
        "sampling_params_list": wanted.sampling(),
        "seed": wanted.job_seed(),
        "metadata": wanted.metadata,
    }
    if turn.task is Task.TTS:
        fields["text"] = turn.text
    if turn.task is not Task.ASR:
        fields |= {
            "voice": voice_name(wanted.audio.voice),
            "response_format": wanted.form,
            "live": wanted.stream,
        }
    if wanted.target_language is not None:
        fields["target_language"] = wanted.target_language
    return fields


def _check_last(wanted: ChatRequest) -> None:
    last = wanted.messages[-1]
    if wanted.continue_final_message and last.role != "assistant":
        raise _refused("with continue_final_message the last message is the assistant's")
    if last.role == "assistant" and last.text.strip() != TTS_START:
        raise UnsupportedValue("messages", f"a last message of the assistant may only be {TTS_START}")


def _url_of(part: Part) -> str | None:
    match part:
        case AudioUrlPart():
            return part.audio_url.url
        case InputAudioPart():
            return f"data:;base64,{part.input_audio.data}"
        case _:
            return None


def _refused(why: str) -> StagewaveError:
    return StagewaveError(ErrorCode.INVALID_REQUEST, why, field="messages")
