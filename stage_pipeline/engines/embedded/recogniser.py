"""Speech recognition and translation into English with Whisper base."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import ctranslate2
import numpy as np
import numpy.typing as npt
from faster_whisper import WhisperModel
from faster_whisper.transcribe import restore_speech_timestamps
from faster_whisper.vad import get_speech_timestamps

from stage_pipeline.engines.embedded.background import give_way
from stage_pipeline.engines.embedded.cores import usable_cores
from stage_pipeline.stages import THINKER_RATE_HZ, Float32Wave, Segment, Word

WhisperTask = Literal["transcribe", "translate"]

# Widths above 1 cost a tenth more time on base and get punctuation and rare words right.
_BEAM_SIZE = 5


@dataclass(frozen=True, slots=True)
class Heard:
    """What was recognised at one step."""

    segment: Segment
    text_tokens: int
    progress: float


@dataclass(frozen=True, slots=True)
class Language:
    """The language of a recording, as an ISO 639-1 code, and how sure that is."""

    code: str
    probability: float


class Recogniser:
    """One model for many threads: as many decode at once as there are cores, the others wait their turn."""

    def __init__(self, folder: Path, workers: int, *, background: bool = False) -> None:
        """``background``: its threads give way to others."""
        # One thread a job: with more threads than cores it slows tenfold, and two jobs with a thread each
        # are faster than one after the other with two.
        count = max(1, min(workers, usable_cores()))
        load = partial(
            _EncodeOnce,
            str(folder),
            device="cpu",
            compute_type="int8",
            cpu_threads=1,
            num_workers=count,
            local_files_only=True,
        )
        # The model's threads are like the one that starts them.
        with ThreadPoolExecutor(1, initializer=give_way if background else None) as starter:
            self._model = starter.submit(load).result()
        self.languages = frozenset(self._model.supported_languages)

    def warm_up(self) -> None:
        """Recognise a second of faint noise, which loads the speech detector too."""
        noise = np.random.default_rng(0).standard_normal(THINKER_RATE_HZ).astype(np.float32) * 1e-3
        get_speech_timestamps(noise)
        for _ in self._decode(noise, "transcribe", "en", words=False):
            pass

    def detect(self, audio: Float32Wave) -> Language | None:
        """The language of a recording; None when nothing is spoken."""
        speech = get_speech_timestamps(audio)
        if not speech:
            return None
        # From the features of all of it, as recognition does, so that the first window is the same one.
        features = self._model.feature_extractor(_only(audio, speech))
        code, probability, _ = self._model.detect_language(features=features)
        return Language(code, float(probability))

    def hear(self, audio: Float32Wave, task: WhisperTask, language: str, *, words: bool) -> Iterator[Heard]:
        """Recognise float32 ``[samples]`` at 16 kHz, segment by segment.

        Times never run backwards and stay inside the recording.
        """
        total_s = len(audio) / THINKER_RATE_HZ
        last_s = 0.0
        for found, tokens in self._decode(audio, task, language, words=words):
            segment = _straight(found, last_s, total_s)
            last_s = segment.end_s
            yield Heard(segment, tokens, min(segment.end_s / total_s, 1.0))

    def _decode(
        self, audio: Float32Wave, task: WhisperTask, language: str, *, words: bool
    ) -> Iterator[tuple[Segment, int]]:
        speech = get_speech_timestamps(audio)
        if not speech:
            return
        # Silence is cut out here rather than by the library's own filter, which would look for it twice.
        segments, _ = self._model.transcribe(
            _only(audio, speech),
            task=task,
            language=language,
            beam_size=_BEAM_SIZE,
            # One temperature: the fallbacks draw random numbers, and a second attempt must hear the same.
            temperature=0.0,
            condition_on_previous_text=False,
            word_timestamps=words,
            vad_filter=False,
        )
        for found in restore_speech_timestamps(segments, speech, THINKER_RATE_HZ):
            if found.text.strip():
                yield _segment(found), len(found.tokens)


class _EncodeOnce(WhisperModel):  # type: ignore[misc]  # the library has no types
    """Remembers a thread's last encoded window: detecting the language, recognising and translating begin
    with the same one, and on a short clip encoding is half of the work."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._last = threading.local()

    def encode(self, features: npt.NDArray[np.float32]) -> ctranslate2.StorageView:
        last: tuple[npt.NDArray[np.float32], ctranslate2.StorageView] | None = getattr(
            self._last, "pair", None
        )
        if last is not None and np.array_equal(last[0], features):
            return last[1]
        encoded = super().encode(features)
        self._last.pair = (features.copy(), encoded)
        return encoded


def _only(audio: Float32Wave, speech: list[dict[str, int]]) -> Float32Wave:
    return np.concatenate([audio[part["start"] : part["end"]] for part in speech])


def _segment(found: object) -> Segment:
    words = tuple(
        Word(word.word, float(word.start), float(word.end), float(word.probability))
        for word in getattr(found, "words", None) or ()
    )
    return Segment(str(found.text), float(found.start), float(found.end), words)  # type: ignore[attr-defined]  # untyped


def _straight(segment: Segment, earliest_s: float, latest_s: float) -> Segment:
    """What Whisper's rounding makes overlap follows each other."""

    def clamp(time_s: float, least_s: float) -> float:
        return round(min(max(time_s, least_s), latest_s), 3)

    words = []
    at_s = earliest_s
    for word in segment.words:
        start_s = clamp(word.start_s, at_s)
        at_s = clamp(word.end_s, start_s)
        words.append(replace(word, start_s=start_s, end_s=at_s))
    start_s = words[0].start_s if words else clamp(segment.start_s, earliest_s)
    end_s = max(at_s, clamp(segment.end_s, start_s))
    return Segment(segment.text, start_s, end_s, tuple(words))
