"""The two stage protocols, and what goes in and out of them. Nothing above knows which engine runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stage_pipeline.chunking import ChunkPolicy
from stage_pipeline.errors import ErrorCode, StagewaveError

Float32Wave = npt.NDArray[np.float32]
TokenArray = npt.NDArray[np.int32]

THINKER_RATE_HZ = 16_000
"""The rate at which every Thinker hears."""


class Task(StrEnum):
    """What a job asks for."""

    ASR = "asr"
    TTS = "tts"
    S2ST = "s2st"


@dataclass(frozen=True, slots=True)
class Word:
    """One recognised word; times in seconds from the start of the audio."""

    text: str
    start_s: float
    end_s: float
    probability: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of recognised speech; ``words`` is empty unless word times were asked for."""

    text: str
    start_s: float
    end_s: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One attempt's request to a Thinker.

    ``audio``: float32 ``[samples]`` mono at ``THINKER_RATE_HZ`` (ASR, S2ST), ``text`` (TTS).
    ``prior_tokens``: audio tokens an earlier attempt already handed on, and ``prior_output_ids`` every id
    the model had made by then (``ThinkerDelta.output_ids``). A Thinker with ``resumes_from_tokens``
    continues after them and never yields them again. ``background``: nobody waits for it, so others go
    before it where the engine can tell them apart.
    """

    request_id: str
    task: Task
    text: str = ""
    audio: Float32Wave | None = None
    language: str | None = None
    target_language: str | None = None
    instructions: str | None = None
    voice: str = "default"
    word_timestamps: bool = False
    seed: int = 42
    sampling: Mapping[str, float | int] = field(default_factory=dict)
    prior_tokens: tuple[int, ...] = ()
    prior_output_ids: tuple[int, ...] = ()
    background: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a Thinker read and made, in tokens."""

    prompt_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ThinkerDelta:
    """One step's worth of output; any part may be empty.

    ``text``: new text of the answer (ASR: the transcript; S2ST: what will be spoken).
    ``source_text``: new text of what was heard (S2ST). ``tokens``: int32 ``[n]`` new audio tokens.
    ``output_ids``: every id the model made in this step, from an engine that needs them all to continue.
    ``progress``: share of the input done, 0 to 1. The last delta has ``finish_reason`` (``stop`` or
    ``length``) and ``usage``.
    """

    text: str = ""
    source_text: str = ""
    tokens: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    segments: tuple[Segment, ...] = ()
    language: str | None = None
    progress: float | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class Thinker(Protocol):
    """Stage 0: from text or audio to text and audio tokens. Called from many threads at once."""

    @property
    def resumes_from_tokens(self) -> bool:
        """Whether an attempt can go on after the tokens of the one before."""
        ...

    @property
    def chunk_policy(self) -> ChunkPolicy: ...

    @property
    def longest_text_chars(self) -> int | None:
        """How long a text it speaks well at once, in letters of an alphabet; None for any. A longer one is
        cut into pieces, each of which is a request of its own."""
        ...

    @property
    def longest_audio_s(self) -> float | None:
        """How much audio it hears at once; None for any. Longer audio is cut, as a text is, and in audio
        that is not the engine is never asked about what has no speech in it."""
        ...

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        """Yield deltas until the request is done; after ``abort`` the iterator ends early.

        Raises ``StagewaveError`` for input the engine cannot take (``text_empty``,
        ``language_unsupported``, ``engine_failed``, …).
        """
        ...

    def abort(self, request_id: str) -> None:
        """End the named request within one engine step; unknown ids are ignored."""
        ...

    def warm_up(self) -> None:
        """Run once before the pool says it is ready."""
        ...

    def close(self) -> None: ...


class Token2WavStream(Protocol):
    """One utterance being voiced. Used by one thread at a time."""

    def feed(self, tokens: tuple[int, ...], final: bool) -> Iterator[Float32Wave]:
        """Voice one window of audio tokens; yields float32 ``[samples]`` pieces in [-1, 1] as they are
        ready. With ``final`` the stream also gives its tail; ``tokens`` may then be empty.
        The same windows, voice and seed give the same samples, whatever else runs."""
        ...

    def close(self) -> None:
        """Free the slot; safe at any moment and more than once."""
        ...


class Token2Wav(Protocol):
    """Stage 1: from audio tokens and a voice to a wave. Many streams at a time, batched inside."""

    @property
    def sample_rate(self) -> int: ...

    @property
    def chunk_policy(self) -> ChunkPolicy: ...

    def open(
        self,
        voice: str,
        seed: int,
        *,
        speed: float = 1.0,
        features: Callable[[], bytes] | None = None,
        background: bool = False,
    ) -> Token2WavStream:
        """``voice``: one of ``voices()``, or with ``features`` the id of one that was made at run time:
        they give what ``prepare_voice`` gave, and are asked for when the engine does not keep that voice.
        ``speed``: 1 is the voice's own. ``background``: nobody waits for its sound, so other streams go
        before it. Raises ``StagewaveError(voice_unknown)``, and ``invalid_request`` for a speed that the
        engine cannot speak at."""
        ...

    @property
    def voice_tag(self) -> str:
        """Letters and digits that name what prepares voices here: features are of use under the same
        tag only. Empty for an engine that takes no voices."""
        ...

    def prepare_voice(self, prompt: bytes) -> bytes:
        """The features of a voice, from its prompt: a mono 16-bit wav that has met the rules of
        ``voice_check``. Raises ``StagewaveError``: ``voice_unsupported``, or what is wrong with it."""
        ...

    def voices(self) -> tuple[str, ...]: ...

    def warm_up(self) -> None: ...

    def close(self) -> None: ...


def own_speed_only() -> StagewaveError:
    """For engines whose voices have one speed."""
    return StagewaveError(
        ErrorCode.INVALID_REQUEST, "this model speaks at a speed of 1.0 only", field="speed"
    )


def no_new_voices() -> StagewaveError:
    """For engines that take none."""
    return StagewaveError(
        ErrorCode.VOICE_UNSUPPORTED, "this model speaks with its own voices only: it takes no new ones"
    )
