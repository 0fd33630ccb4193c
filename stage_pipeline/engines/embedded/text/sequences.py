"""Digits that are not one quantity: telephone numbers, versions, addresses, ranges, fractions, ordinals."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.numerals import NUMBER, cardinal, digits, number, ordinal, plural

_PHONE = re.compile(
    r"(?<![\w.])(?:\+?1[ .-]?)?(?:\(\d{3}\)\s?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"
    r"|(?<![\w.])\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,6}(?![\w-])"
    r"|(?<![\w.,-])\d{3}-\d{4}(?![\w-])"
    r"|(?<![\w.,-])\d{3}-\d{2}-\d{4}(?![\w-])"
)
_VERSION = re.compile(r"(?<![\w.,])[vV]?\d+(?:\.\d+){2,}(?![\w])")
_SHORT_VERSION = re.compile(r"\b[vV](?=\d+(?:\.\d+)*\b)")
_RANGE = re.compile(rf"(?<![\w.,/-])(?P<from>{NUMBER})\s?[-–—]\s?(?P<to>{NUMBER})(?![\w/-]|\s?=)")
_MIXED_FRACTION = re.compile(r"(?<![\w.,/])(\d+)\s(\d{1,2})/(\d{1,2})(?![\w/]|\.\d)")
_FRACTION = re.compile(r"(?<![\w.,/])(\d{1,6})/(\d{1,6})(?![\w/]|\.\d)")
_ORDINAL = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(?:st|nd|rd|th)\b", re.IGNORECASE)
_THOUSANDS = re.compile(rf"(?<![\w.,])({NUMBER})\s?k\b")
_RATIO = re.compile(r"(?<![\w:.,])(\d{1,4}):(\d{1,4})(?![\w:])")
_TIMES = re.compile(rf"(?<![\w.,])({NUMBER})\s?[x×*]\s?(?={NUMBER}|\s|$|[.,;:!?)])")
_NUMBER = re.compile(rf"(?P<sign>(?<![\w)])[-−+±])?(?<![\d.,])(?P<number>{NUMBER})(?P<s>s\b)?")

# Longer than this without separators, a number is an identifier rather than a quantity.
_LONGEST_QUANTITY = 6
_DENOMINATORS = {2: "half", 4: "quarter"}


def spell_sequences(text: str) -> str:
    """Everything whose parts are read one after another, before plain numbers are."""
    text = _PHONE.sub(_phone, text)
    text = _VERSION.sub(_version, text)
    text = _SHORT_VERSION.sub("version ", text)
    text = _MIXED_FRACTION.sub(lambda m: f"{cardinal(m[1])} and {_fraction_words(m[2], m[3])}", text)
    text = _FRACTION.sub(lambda m: _fraction_words(m[1], m[2]), text)
    return _ORDINAL.sub(lambda m: ordinal(m[1]), text)


def spell_numbers(text: str) -> str:
    """The numbers that are left: ranges, ratios, factors, and plain ones."""
    text = _THOUSANDS.sub(lambda m: f"{number(m[1])} thousand", text)
    text = _RANGE.sub(lambda m: f"{_plain(m['from'])} to {_plain(m['to'])}", text)
    text = _RATIO.sub(lambda m: f"{cardinal(m[1])} to {cardinal(m[2])}", text)
    text = _TIMES.sub(lambda m: f"{number(m[1])} times ", text)
    return _NUMBER.sub(_signed, text)


def _phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    return ("plus " if match[0].startswith("+") else "") + ", ".join(digits(group) for group in groups)


def _version(match: re.Match[str]) -> str:
    prefix = "version " if match[0][0] in "vV" else ""
    parts = match[0].lstrip("vV").split(".")
    # Four parts are an internet address: its numbers are given digit by digit.
    say = digits if len(parts) == 4 else cardinal
    return prefix + (" dot " if len(parts) == 4 else " point ").join(say(part) for part in parts)


def _fraction_words(above: str, below: str) -> str:
    numerator, denominator = int(above), int(below)
    if (numerator, denominator) in {(24, 7), (9, 11)}:
        return f"{cardinal(above)} {cardinal(below)}"
    if denominator in {10, 100} and numerator <= denominator:
        return f"{cardinal(above)} out of {cardinal(below)}"
    if 2 <= denominator <= 64 and 0 < numerator < denominator and above[0] != "0" and below[0] != "0":
        name = _DENOMINATORS.get(denominator) or ordinal(below)
        many = "halves" if name == "half" else plural(name)
        return f"{cardinal(above)} {name if numerator == 1 else many}"
    return f"{cardinal(above)} over {cardinal(below)}"


def _plain(written: str) -> str:
    bare = written.replace(",", "")
    identifier = bare.isdecimal() and len(bare) > _LONGEST_QUANTITY and "," not in written
    # Round ones are quantities however long they are.
    return digits(bare) if identifier and not bare.endswith("000") else number(written)


def _signed(match: re.Match[str]) -> str:
    sign = {"+": "plus ", "±": "plus or minus ", None: ""}.get(match["sign"], "minus ")
    words = _plain(match["number"])
    return f" {sign}{plural(words) if match['s'] else words} "
