"""A transcript's forms: plain text, SubRip, WebVTT, and the JSON object that is stored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from pydantic import TypeAdapter

from stage_pipeline.stages import Segment, Word

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_ARROW = re.compile(r"-{2,}>")
"""What stands between a cue's times: inside its text it would make another cue."""


_SEGMENTS = TypeAdapter(tuple[Segment, ...])


class WordJson(TypedDict):
    text: str
    start_s: float
    end_s: float
    probability: float


class SegmentJson(TypedDict):
    text: str
    start_s: float
    end_s: float
    words: list[WordJson]


class TranscriptJson(TypedDict):
    """``text`` is the answer, ``source_text`` what was heard (S2ST)."""

    text: str
    source_text: str
    language: str | None
    duration_s: float
    segments: list[SegmentJson]


def to_text(segments: Sequence[Segment]) -> str:
    """One line a segment."""
    return "".join(f"{text}\n" for segment in segments if (text := _one_line(segment.text)))


def to_srt(segments: Sequence[Segment]) -> str:
    """SubRip; without segments the empty string, which is a valid file."""
    return "".join(
        f"{number}\n{_clock(start_ms, ',')} --> {_clock(end_ms, ',')}\n{_ARROW.sub('->', text)}\n\n"
        for number, (start_ms, end_ms, text) in enumerate(_cues(segments), 1)
    )


def to_vtt(segments: Sequence[Segment]) -> str:
    """WebVTT; without segments only its first line, which is a valid file."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(start_ms, '.')} --> {_clock(end_ms, '.')}\n{_escape(text)}\n\n"
        for start_ms, end_ms, text in _cues(segments)
    )


def to_json(
    segments: Sequence[Segment],
    *,
    text: str,
    source_text: str = "",
    language: str | None,
    duration_s: float,
) -> TranscriptJson:
    """Plain JSON values only: engines hand over numpy's numbers, and now and then one that is none."""
    return {
        "text": text,
        "source_text": source_text,
        "language": language,
        "duration_s": _number(duration_s),
        "segments": [
            {
                "text": segment.text,
                "start_s": _number(segment.start_s),
                "end_s": _number(segment.end_s),
                "words": [_word_to_json(word) for word in segment.words],
            }
            for segment in segments
        ],
    }


def segments_from_json(transcript: Mapping[str, object]) -> tuple[Segment, ...]:
    """What ``to_json`` was given."""
    return _SEGMENTS.validate_python(transcript["segments"])


def _word_to_json(word: Word) -> WordJson:
    return {
        "text": word.text,
        "start_s": _number(word.start_s),
        "end_s": _number(word.end_s),
        "probability": _number(word.probability),
    }


def _cues(segments: Sequence[Segment]) -> Iterator[tuple[int, int, str]]:
    for segment in segments:
        text = _one_line(segment.text)
        if text:  # a cue without text is none
            start_ms = _milliseconds(segment.start_s)
            # WebVTT wants an end after the start.
            yield start_ms, max(start_ms + 1, _milliseconds(segment.end_s)), text


def _one_line(text: str) -> str:
    """An empty line would end a cue."""
    return " ".join(_CONTROLS.sub(" ", text).split())


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _milliseconds(seconds: float) -> int:
    return max(0, round(_number(seconds) * 1000))


def _clock(total_ms: int, point: str) -> str:
    seconds, ms = divmod(total_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _number(value: float) -> float:
    value = float(value)
    return value if math.isfinite(value) else 0.0
