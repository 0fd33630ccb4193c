"""Numerals in words: how a string of digits is read in American English."""

from __future__ import annotations

from sanotts.nano_g2p import cardinal_words, ordinal_words, year_words

NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
"""A written number, with thousands separators or decimals, as one regular expression group."""

_DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Nobody follows a quadrillion by ear, and the speller ends there.
_LONGEST_CARDINAL = 15


def digits(text: str) -> str:
    """``"007"`` is "zero zero seven"; everything that is not a digit is left out."""
    return " ".join(_DIGIT_WORDS[int(char)] for char in text if char.isdecimal())


def cardinal(text: str) -> str:
    """A whole number; leading zeros and over-long ones are read digit by digit."""
    bare = text.replace(",", "")
    if len(bare) > _LONGEST_CARDINAL or (len(bare) > 1 and bare[0] == "0"):
        return digits(bare)
    return _american(cardinal_words(int(bare)))


def number(text: str) -> str:
    """A whole number or a decimal: ``"1,234.50"``, ``".5"``."""
    whole, point, decimals = text.partition(".")
    words = cardinal(whole) if whole else "zero"
    if not point:
        return words
    # "0.05" has its zero said; only a whole part with a superfluous zero is an identifier.
    return f"{words} point {digits(decimals)}"


def ordinal(text: str) -> str:
    """``"22"`` is "twenty second"."""
    bare = text.replace(",", "").lstrip("0") or "0"
    if len(bare) > _LONGEST_CARDINAL:
        return digits(bare)
    return _american(ordinal_words(int(bare)))


def year(text: str) -> str:
    """``"1905"`` is "nineteen oh five", ``"2024"`` "twenty twenty four"."""
    return _american(year_words(int(text)))


def plural(words: str) -> str:
    """The plural of a numeral: "nineties", "hundreds"."""
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}{'es' if words.endswith('x') else 's'}"


def _american(words: str) -> str:
    # The speller writes "one thousand, two hundred and twenty-four". The comma would be heard as a pause,
    # and in a hyphenated word the second numeral loses its stress: "twenty-four" was heard as twenty.
    return words.replace(",", "").replace(" and ", " ").replace("-", " ")
