"""Times of day in words."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.numerals import cardinal

_HALF = r"(?P<half>[AaPp])(?:\.\s?[Mm]\.?|[Mm]\b)"
_CLOCK = re.compile(
    r"(?<![\d:.,])(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
    rf"(?:\s?{_HALF})?(?P<hours>\s?h\b)?"
)
_HOUR = re.compile(rf"(?<![\d:.,/-])(?P<hour>\d{{1,2}})\s?{_HALF}(?![A-Za-z])")
_BARE_HALF = re.compile(r"\b(?P<half>[AaPp])\.\s?[Mm]\b\.?")


def spell_times(text: str) -> str:
    """``3:45 pm`` is "three forty five P.M", ``15:05`` "fifteen oh five"."""
    text = _CLOCK.sub(_clock, text)
    text = _HOUR.sub(lambda m: f"{cardinal(_bare(m['hour']))} {_half(m)}", text)
    return _BARE_HALF.sub(_half, text)


def _clock(match: re.Match[str]) -> str:
    hour, minute, second = match["hour"], match["minute"], match["second"]
    words = cardinal(_bare(hour))
    if minute != "00":
        words += f" oh {cardinal(minute[1])}" if minute[0] == "0" else f" {cardinal(minute)}"
    elif not match["half"] and second is None:
        words += " o'clock" if 1 <= int(hour) <= 12 else " hundred"
    if second is not None and second != "00":
        words += f" and {cardinal(_bare(second))} seconds"
    return f"{words} {_half(match)}" if match["half"] else words


def _bare(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _half(match: re.Match[str]) -> str:
    # The written dot may also have ended the sentence.
    rest = match.string[match.end() :]
    ends = match[0].endswith(".") and (not rest.strip() or re.match(r"\s+[A-Z\"(]|\n", rest) is not None)
    return f"{match['half'].upper()}.M{'.' if ends else ''}"
