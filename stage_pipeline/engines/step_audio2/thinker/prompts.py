"""What is put before the model: chat messages in one of two dialects, and what tasks say by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stage_pipeline.engines.step_audio2.thinker.vocabulary import (
    AUDIO_END,
    AUDIO_PATCH,
    AUDIO_START,
    TTS_START,
    Vocabulary,
)
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.languages import base_language
from stage_pipeline.stages import GenerateRequest, Task


@dataclass(frozen=True, slots=True)
class Control:
    """A special token, by its name."""

    token: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A piece of audio: so many ``<audio_patch>`` between the tokens that say where it begins and ends."""

    patches: int


@dataclass(frozen=True, slots=True)
class Ids:
    """Tokens as they are, such as an earlier answer's."""

    ids: tuple[int, ...]


Part = str | Control | Heard | Ids
Segment = tuple[Part, ...]
"""What is tokenised in one go; text in it is only text."""


@dataclass(frozen=True, slots=True)
class Message:
    """``content``: one string, which is tokenised with its head and tail, or parts, each on its own.
    ``ends``: False leaves the turn open, for the model to go on with."""

    role: str
    content: str | tuple[Part, ...] = ""
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Dialect:
    """How turns are marked. ``human``: what the one who asks is called."""

    begin: str
    end: str
    between: str
    human: str


DIALECTS = {
    # The official implementation's.
    "official": Dialect("<|BOT|>", "<|EOT|>", "", "human"),
    # The language model's own, which vLLM-Omni uses.
    "im": Dialect("<|im_start|>", "<|im_end|>", "\n", "user"),
}

_READ_ALOUD = {
    "official": "以自然的语速读出下面的文字。\n",
    "im": "You are a voice assistant. Read the text aloud.",
}
"""As in the official examples ("read the text below at a natural pace"), and as vLLM-Omni has it."""
_TRANSCRIBE = "请记录下你所听到的语音内容。"
_TRANSLATE = "请仔细聆听这段语音，然后将其内容翻译成{language}。"
_SPEAK_TRANSLATED = "请仔细聆听这段语音，然后将其内容翻译成{language}并用语音播报。"
"""The official examples' too: the model was trained with these very words."""
_LANGUAGES = {"zh": "中文", "en": "英文", "ja": "日文"}


def messages_of(request: GenerateRequest, dialect: str) -> list[Message]:
    """The chat that asks for what the request asks for; one ``<audio_patch>`` stands for all of its audio.
    Raises ``StagewaveError``."""
    human: str | tuple[Part, ...] = request.text if request.task is Task.TTS else (Control(AUDIO_PATCH),)
    answer: tuple[Part, ...] = () if request.task is Task.ASR else (Control(TTS_START),)
    return [
        Message("system", _system(request, dialect)),
        Message("human", human),
        Message("assistant", answer, ends=False),
    ]


def segments(messages: Sequence[Message], dialect: Dialect) -> list[Segment]:
    """The prompt, cut where the official implementation cuts it to tokenise it."""
    found: list[Segment] = []
    for at, message in enumerate(messages):
        role = dialect.human if message.role in ("human", "user") else message.role
        head: Segment = (Control(dialect.begin), f"{role}\n")
        last = at == len(messages) - 1
        tail: Segment = ()
        if message.ends:
            tail = (
                (Control(dialect.end),)
                if last or not dialect.between
                else (Control(dialect.end), dialect.between)
            )
        if isinstance(message.content, str):
            found.append(_joined((*head, message.content, *tail)))
        elif not message.ends:
            # What the answer begins with belongs to its head.
            found.append((*head, *message.content))
        else:
            found += [head, *((part,) for part in message.content), tail]
    return found


def prompt_ids(segments: Sequence[Segment], vocabulary: Vocabulary) -> list[int]:
    """Every id of the prompt, audio patches included."""
    return [number for segment in segments for part in segment for number in _ids(part, vocabulary)]


def _ids(part: Part, vocabulary: Vocabulary) -> Iterator[int]:
    match part:
        case str():
            yield from vocabulary.ids(part)
        case Control(token):
            yield vocabulary.id_of(token)
        case Ids(ids):
            yield from ids
        case Heard(patches):
            yield vocabulary.id_of(AUDIO_START)
            yield from [vocabulary.id_of(AUDIO_PATCH)] * patches
            yield vocabulary.id_of(AUDIO_END)


def _joined(parts: Segment) -> Segment:
    """Text that stands side by side becomes one, as it is tokenised as one."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def _system(request: GenerateRequest, dialect: str) -> str:
    """``instructions`` stand for the default; beside a target language they come after it."""
    target = _language(request.target_language, "target_language")
    if request.instructions and target is None:
        return request.instructions
    system = _default_system(request, dialect, target)
    return f"{system}\n{request.instructions}" if request.instructions else system


def _default_system(request: GenerateRequest, dialect: str, target: str | None) -> str:
    match request.task:
        case Task.TTS:
            return _READ_ALOUD[dialect]
        case Task.ASR:
            return _TRANSLATE.format(language=_LANGUAGES[target]) if target else _TRANSCRIBE
        case Task.S2ST:
            # Unasked, into English; English itself into Chinese.
            heard = base_language(request.language)
            target = target or ("zh" if heard == "en" else "en")
            return _SPEAK_TRANSLATED.format(language=_LANGUAGES[target])


def _language(code: str | None, field: str) -> str | None:
    base = base_language(code)
    if base is not None and base not in _LANGUAGES:
        raise StagewaveError(
            ErrorCode.LANGUAGE_UNSUPPORTED,
            "speech is translated into Chinese (zh), English (en) or Japanese (ja)",
            field=field,
        )
    return base
