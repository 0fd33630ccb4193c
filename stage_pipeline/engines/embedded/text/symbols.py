"""Signs with a name, and the removal of those without."""

from __future__ import annotations

import re
import unicodedata

_BEFORE = str.maketrans(
    {
        "’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‐": "-", "‑": "-",
        "‒": "–", "―": "—", "…": "...", "™": "", "®": "", "©": "", "²": "2", "³": "3", "µ": "μ",
        "№": "No. ",
        "。": ". ", "、": ", ", "，": ", ", "！": "! ", "？": "? ", "：": ": ", "；": "; ",
        "¿": "", "¡": "", "•": "\n", "·": " ", "\u00a0": " ", "\u202f": " ", "\u2009": " ",
        "½": " 1/2", "¼": " 1/4", "¾": " 3/4", "⅓": " 1/3", "⅔": " 2/3", "⅛": " 1/8",
    }
)  # fmt: skip
_WORDS = {
    "&": " and ", "@": " at ", "+": " plus ", "=": " equals ", "%": " percent ", "×": " times ",
    "÷": " divided by ",
    "±": " plus or minus ", "≤": " is at most ", "≥": " is at least ", "≠": " is not equal to ",
    "≈": " is about ",
    "°": " degrees ", "§": " section ", "$": " dollars ", "€": " euros ", "£": " pounds ",
    "~": " about ", "√": " root ",
    "π": " pi ", "∞": " infinity ",
}  # fmt: skip
_SQUARED = re.compile(r"(?<=[A-Za-z)\d])(²|³)")
_MARKDOWN = re.compile(r"(?<!\w)(?:[*_`]{1,3}|~~)(?=\S)|(?<=\S)(?:[*_`]{1,3}|~~)(?!\w)")
_HEADING = re.compile(r"^\s*#{1,6}\s+", re.MULTILINE)
_BULLET = re.compile(r"^\s*[-*+•]\s+", re.MULTILINE)
_HASH_NUMBER = re.compile(r"#\s?(?=\d)")
_SHARP = re.compile(r"(?<=\b[A-G])#(?!\w)")
_HASHTAG = re.compile(r"#(?=[A-Za-z])")
_COMPARED = re.compile(r"(?<=\w)\s?([<>])\s?(?=\w)")
_MINUS = re.compile(r"(?<=\d)\s?[-−–]\s?(?=\d[\d.,]*\s?=)")
_DIVIDED = re.compile(r"\b(and)/(or)\b", re.IGNORECASE)
_SLASH = re.compile(r"(?<=[A-Za-z])\s?/\s?(?=[A-Za-z])")
_DASH = re.compile(r"\s*(?:—|--+)\s*|\s+[-–−]\s+")
_ELLIPSIS = re.compile(r"\.{2,}(?=\s*(?P<next>\S)?)")
_UNIT_POWER = re.compile(r"^(?:k|c|d|m)?m$")


def tidy(text: str) -> str:
    """One form for each sign, markdown dropped, list items and headings on lines of their own."""
    text = _SQUARED.sub(_power, text)
    text = text.translate(_BEFORE)
    # After the table, or "½" would become 1⁄2 with a slash of its own.
    text = unicodedata.normalize("NFKC", text).replace("µ", "μ")
    text = _HEADING.sub("\n", text)
    text = _BULLET.sub("\n", text)
    return _MARKDOWN.sub("", text)


def name_symbols(text: str) -> str:
    """Signs that are said, in words; every other one becomes a pause or nothing."""
    text = _MINUS.sub(" minus ", text)
    text = _HASH_NUMBER.sub("number ", text)
    text = _SHARP.sub(" sharp", text)
    text = _HASHTAG.sub("hashtag ", text)
    text = _COMPARED.sub(lambda m: " is less than " if m[1] == "<" else " is greater than ", text)
    text = _DIVIDED.sub(r"\1 \2", text)
    text = _SLASH.sub(" slash ", text)
    for sign, words in _WORDS.items():
        text = text.replace(sign, words)
    text = _DASH.sub(", ", text)
    return _ELLIPSIS.sub(_ellipsis, text)


def _power(match: re.Match[str]) -> str:
    word = re.search(r"[A-Za-z]*$", match.string[: match.start()])
    if word is not None and _UNIT_POWER.match(word[0]):
        return "2" if match[1] == "²" else "3"
    return " squared" if match[1] == "²" else " cubed"


def _ellipsis(match: re.Match[str]) -> str:
    following = match["next"]
    return "," if following and following.islower() else "."
