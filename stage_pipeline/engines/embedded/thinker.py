"""The Thinker of the embedded engine: Whisper hears, a dictionary turns text into phonemes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stage_pipeline.engines.aborts import Aborts
from stage_pipeline.engines.embedded.clauses import cut_clauses
from stage_pipeline.engines.embedded.model_files import whisper_folder
from stage_pipeline.engines.embedded.phonemes import Phonemizer
from stage_pipeline.engines.embedded.recogniser import Recogniser, WhisperTask
from stage_pipeline.engines.embedded.text import spoken_text
from stage_pipeline.engines.embedded.text.letters import has_letters, has_speakable
from stage_pipeline.engines.embedded.tokens import CHUNK_POLICY, END, PAD, TOKENS_PER_S
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.languages import base_language
from stage_pipeline.stages import (
    THINKER_RATE_HZ,
    Float32Wave,
    GenerateRequest,
    Segment,
    Task,
    ThinkerDelta,
    Usage,
)

VOICE_LANGUAGE = "en"
"""What the voice speaks, and the only language that speech is translated into."""

# A guess at a language below this is no ground to refuse a recording.
_SURE = 0.5
# Whisper's encoder makes 50 positions of a second of sound.
_PROMPT_TOKENS_PER_S = 50
# Speech that never ends a sentence is voiced all the same.
_HELD_CHARS = 400


class EmbeddedThinker:
    """Stage 0 on a CPU; deterministic, so that an attempt repeats what an earlier one said.

    S2ST says the same words again in the system voice when the speech is English, and its translation when
    ``target_language`` is "en". The voice speaks English only: speech in another language without
    ``target_language`` is refused (``language_unsupported``), never translated unasked.
    """

    resumes_from_tokens = True
    chunk_policy = CHUNK_POLICY
    # It could speak any text at once; but a lost worker may cost a piece.
    longest_text_chars = 1200
    # Whisper's window is 30 seconds: what is longer would be cut again, and anywhere.
    longest_audio_s = 28.0

    def __init__(
        self, cache: Path, *, workers: int, audio_out_s: float, sampling: Mapping[str, object]
    ) -> None:
        """``workers``: jobs at a time. ``audio_out_s``: about how much speech one job may make."""
        self._load = partial(Recogniser, whisper_folder(cache), workers)
        self._recogniser = self._load()
        self._in_background: Recogniser | None = None
        self._loading = threading.Lock()
        self._phonemizer = Phonemizer()
        self._longest = int(audio_out_s * TOKENS_PER_S)
        self._sampling = sampling
        self._aborts = Aborts()

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        """As ``Thinker.generate``. A ``max_tokens`` in the sampling parameters limits the audio tokens."""
        return self._until(self._aborts.begin(request.request_id), request)

    def abort(self, request_id: str) -> None:
        self._aborts.abort(request_id)

    def warm_up(self) -> None:
        self._phonemizer.warm_up()
        self._recogniser.warm_up()

    def close(self) -> None:
        self._aborts.abort_all()

    def _until(self, stop: threading.Event, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        try:
            deltas = self._deltas(request)
            # Looked at on both sides of a step: the caller may have been away for long, and so may the
            # step.
            while not stop.is_set() and (delta := next(deltas, None)) is not None and not stop.is_set():
                yield delta
        finally:
            self._aborts.end(request.request_id, stop)

    def _deltas(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        match request.task:
            case Task.TTS:
                return self._speak(request)
            case Task.ASR:
                return self._recognise(request)
            case Task.S2ST:
                return self._say_again(request)

    # Text to speech

    def _speak(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        language = base_language(request.language)
        if language not in (None, VOICE_LANGUAGE):
            raise _unsupported("language", "the voice speaks English (en) only")
        if has_letters(request.text) and not has_speakable(request.text):
            raise _unsupported(
                "text", "the voice speaks English (en) only, and the text has no Latin letters"
            )
        text = spoken_text(request.text)
        speech = self._speech(request)
        said = 0
        for clause, tokens in speech.clauses(text):
            # Which clause is how much of the text is known only here; the tokens may be an earlier
            # attempt's.
            said += len(clause)
            yield ThinkerDelta(
                text=f"{clause} ", tokens=tokens, progress=min(said / max(len(text), 1), 1.0)
            )
        if not speech.made and speech.finish_reason == "stop":
            raise StagewaveError(
                ErrorCode.TEXT_EMPTY, "the text has nothing that can be said", field="text"
            )
        yield ThinkerDelta(
            finish_reason=speech.finish_reason,
            progress=1.0,
            usage=Usage(prompt_tokens=len(request.text), audio_tokens=speech.made),
        )

    def _speech(self, request: GenerateRequest) -> _Speech:
        asked = request.sampling.get("max_tokens", self._sampling.get("max_tokens"))
        limit = self._longest if not isinstance(asked, int | float) else min(self._longest, int(asked))
        return _Speech(self._phonemizer, limit, request.prior_tokens)

    # Speech to text

    def _recognise(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        audio = _audio(request)
        target = _target(request)
        language = self._language(request, audio)
        task: WhisperTask = "transcribe" if target in (None, language) else "translate"
        yield ThinkerDelta(language=language, progress=0.0)
        text_tokens = 0
        if language is not None:
            text = _Joined()
            recogniser = self._recogniser_of(request)
            for heard in recogniser.hear(audio, task, language, words=request.word_timestamps):
                text_tokens += heard.text_tokens
                yield ThinkerDelta(
                    text=text.next(heard.segment.text),
                    segments=(_stripped(heard.segment),),
                    progress=heard.progress,
                )
        yield ThinkerDelta(
            finish_reason="stop", progress=1.0, usage=Usage(_prompt_tokens(audio), text_tokens)
        )

    # Speech to speech

    def _say_again(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        audio = _audio(request)
        target = _target(request)
        language = self._language(request, audio)
        if language is None:
            raise StagewaveError(ErrorCode.AUDIO_EMPTY, "no speech was heard in the audio", field="audio")
        translate = language != VOICE_LANGUAGE
        if translate and target is None:
            raise _unsupported(
                "target_language",
                f"the speech is in another language ({language}) and the voice speaks English only: set "
                'target_language to "en" to have it translated',
            )
        yield ThinkerDelta(language=language, progress=0.0)
        speech = self._speech(request)
        text_tokens = 0
        # Two passes over a translation: what is to be said comes first, since somebody may be listening.
        share = 0.5 if translate else 1.0
        recogniser = self._recogniser_of(request)
        heard_all = recogniser.hear(
            audio,
            "translate" if translate else "transcribe",
            language,
            words=request.word_timestamps and not translate,
        )
        spoken = _Joined()
        held = ""
        for heard in heard_all:
            text_tokens += heard.text_tokens
            words = spoken.next(heard.segment.text)
            held += words
            segments = () if translate else (_stripped(heard.segment),)
            yield ThinkerDelta(
                text=words,
                source_text="" if translate else words,
                segments=segments,
                progress=heard.progress * share,
            )
            if held.rstrip().endswith((".", "?", "!")) or len(held) > _HELD_CHARS:
                yield from _voiced(speech, held)
                held = ""
            if speech.finish_reason == "length":
                break
        yield from _voiced(speech, held)
        if not speech.made and speech.finish_reason == "stop":
            raise StagewaveError(ErrorCode.AUDIO_EMPTY, "no words were heard in the audio", field="audio")
        if translate and speech.finish_reason == "stop":
            source = _Joined()
            for heard in recogniser.hear(audio, "transcribe", language, words=request.word_timestamps):
                text_tokens += heard.text_tokens
                yield ThinkerDelta(
                    source_text=source.next(heard.segment.text),
                    segments=(_stripped(heard.segment),),
                    progress=share + heard.progress * share,
                )
        yield ThinkerDelta(
            finish_reason=speech.finish_reason,
            progress=1.0,
            usage=Usage(_prompt_tokens(audio), text_tokens, speech.made),
        )

    def _recogniser_of(self, request: GenerateRequest) -> Recogniser:
        """Batches have a model of their own, of 150 MB, loaded with the first of them: somebody who waits
        need not stand behind them in its queue, nor share a core with it."""
        if not request.background:
            return self._recogniser
        with self._loading:
            if self._in_background is None:
                self._in_background = self._load(background=True)
            return self._in_background

    # Languages

    def _language(self, request: GenerateRequest, audio: Float32Wave) -> str | None:
        """The language of the speech; None if nothing is spoken."""
        asked = base_language(request.language)
        if asked is not None:
            if asked not in self._recogniser.languages:
                raise _unsupported(
                    "language", "this language is not recognised; give an ISO 639-1 code, or none"
                )
            return asked
        found = self._recogniser_of(request).detect(audio)
        if found is None:
            return None
        unsure = found.probability < _SURE
        return (
            VOICE_LANGUAGE
            if unsure and request.task is Task.S2ST and not request.target_language
            else found.code
        )


def _target(request: GenerateRequest) -> str | None:
    target = base_language(request.target_language)
    if target not in (None, VOICE_LANGUAGE):
        raise _unsupported("target_language", "speech is translated into English (en) only")
    return target


class _Speech:
    """The audio tokens of one request, clause by clause, less those that an earlier attempt handed on."""

    def __init__(self, phonemizer: Phonemizer, limit: int, prior: tuple[int, ...]) -> None:
        self._phonemizer = phonemizer
        self._limit = limit
        self._prior = prior
        self.made = 0
        self.finish_reason = "stop"

    def clauses(self, text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The clauses of spoken text with their new tokens; ends early at the limit."""
        for clause in cut_clauses(text, first=self.made == 0):
            if self.finish_reason == "length":
                return
            tokens = self._phonemizer.tokens(clause)
            room = self._limit - self.made
            if len(tokens) > room:
                self.finish_reason = "length"
                tokens = _cut_short(tokens, room)
            if tokens:
                yield clause.text, self._new(tokens)

    def _new(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        before = self._prior[self.made : self.made + len(tokens)]
        if tokens[: len(before)] != before:
            raise StagewaveError(
                ErrorCode.ENGINE_FAILED, "the earlier attempt's tokens do not belong to this request"
            )
        self.made += len(tokens)
        return tokens[len(before) :]


class _Joined:
    """Puts segments' texts one after another: Whisper begins each with its space, if its script has any."""

    def __init__(self) -> None:
        self._any = False

    def next(self, text: str) -> str:
        piece = text if self._any else text.lstrip()
        self._any = self._any or bool(piece)
        return piece


def _voiced(speech: _Speech, text: str) -> Iterator[ThinkerDelta]:
    for _, tokens in speech.clauses(spoken_text(text)):
        yield ThinkerDelta(tokens=tokens)


def _cut_short(tokens: tuple[int, ...], room: int) -> tuple[int, ...]:
    """The longest start of a clause that fits and is still a clause; empty if none is."""
    # BEGIN PAD phoneme PAD END is the shortest that makes a sound.
    body = tokens[: max(room - 1, 0)]
    while body and body[-1] != PAD:
        body = body[:-1]
    return (*body, END) if len(body) >= 4 else ()


def _audio(request: GenerateRequest) -> Float32Wave:
    if request.audio is None or not len(request.audio):
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the audio has no samples", field="audio")
    return request.audio


def _prompt_tokens(audio: Float32Wave) -> int:
    return round(len(audio) / THINKER_RATE_HZ * _PROMPT_TOKENS_PER_S)


def _stripped(segment: Segment) -> Segment:
    return Segment(segment.text.strip(), segment.start_s, segment.end_s, segment.words)


def _unsupported(field: str, message: str) -> StagewaveError:
    return StagewaveError(ErrorCode.LANGUAGE_UNSUPPORTED, message, field=field)
