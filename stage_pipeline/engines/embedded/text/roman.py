"""Roman numerals: ordinals after a ruler's name, cardinals after anything else that is numbered."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.numerals import cardinal, ordinal

_RULERS = frozenset(
    "Henry Louis Charles George Edward Elizabeth James William Richard Philip Napoleon Paul Benedict"
    " Pius Leo Nicholas"
    " Catherine Alexander Frederick Ferdinand Wilhelm Gustav Peter Ivan Francis John Robert Mary"
    " Victor Umberto Otto"
    " Urban Gregory Innocent Clement Ramses Ramesses Cleopatra Ptolemy Xerxes Darius Constantine"
    " Justinian Albert"
    " Leopold Christian Harald Olav Haakon Alfonso Joseph Maximilian Rudolf Murad Mehmed Selim"
    " Suleiman".split()
)
_RANKS = frozenset("King Queen Pope Emperor Empress Tsar Czar Prince Sultan Kaiser Duke".split())
_ROMAN = re.compile(r"(?P<rank>\b[A-Z][a-z]+\s)?\b(?P<name>[A-Z][a-z]+)\s(?P<roman>[IVX]{1,6})\b(?!['.]\w)")
_VALUES = {"I": 1, "V": 5, "X": 10}
_NUMBERED = frozenset(
    "Chapter Part Act Scene Section Volume Book Type Phase Class Level War Title Article Appendix".split()
)


def spell_roman(text: str) -> str:
    """``Henry VIII`` is "Henry the eighth", ``World War II`` "World War two"."""
    return _ROMAN.sub(_roman, text)


def _roman(match: re.Match[str]) -> str:
    value = _value(match["roman"])
    name = match["name"]
    ruler = name in _RULERS or (match["rank"] or "").strip() in _RANKS
    # A single letter is a numeral only in company that is always numbered: "I" and "X" are words too.
    if value is None or (len(match["roman"]) == 1 and not (ruler or name in _NUMBERED)):
        return match[0]
    if (
        ruler
        and match["roman"] == "I"
        and (match["rank"] or "").strip() not in _RANKS
        and name not in _RULERS
    ):
        return match[0]
    spoken = f"the {ordinal(str(value))}" if ruler else cardinal(str(value))
    return f"{match['rank'] or ''}{name} {spoken}"


def _value(roman: str) -> int | None:
    total = 0
    for index, char in enumerate(roman):
        value = _VALUES[char]
        following = _VALUES[roman[index + 1]] if index + 1 < len(roman) else 0
        total += -value if value < following else value
    return total if total > 0 and _written(total) == roman else None


def _written(value: int) -> str:
    out = ""
    for size, letters in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        count, value = divmod(value, size)
        out += letters * count
    return out
