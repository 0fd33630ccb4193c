"""Web addresses, e-mail addresses and file names, read as one would over the telephone."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.abbreviations import LETTER_A
from stage_pipeline.engines.embedded.text.numerals import digits

_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_URL = re.compile(r"\b(?:https?|ftp)://[^\s<>\"']{1,2000}", re.IGNORECASE)
_WWW = re.compile(r"\bwww\.[^\s<>\"']{1,2000}", re.IGNORECASE)
_DOMAIN = re.compile(
    r"(?<![\w.@/-])(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|edu|gov|info|io|dev|ai|app|co|uk|de|eu|fr|us|tv|me)\b"
    r"(?:/[^\s<>\"']{0,2000})?",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"(?<![\w./-])[\w-]{1,64}\.(?:txt|pdf|docx?|xlsx?|csv|json|ya?ml|xml|html?|css|js|ts|py|md|wav|mp3|mp4|png|jpe?g|gif|zip)\b"
)
_SCHEME = re.compile(r"^[a-z]{3,5}://", re.IGNORECASE)
_NAMES = {
    ".": "dot", "/": "slash", "@": "at", "-": "dash", "_": "underscore", ":": "colon", "?": "question mark",
    "=": "equals", "&": "and", "#": "hash", "+": "plus", "%": "percent", "~": "tilde",
}  # fmt: skip
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")
_TAIL = ".,;:!?)]}'\""
# Endings that are said as a word; the others are spelled.
_SAID = frozenset("com org net edu gov info dev app json doc docx gif zip".split())


def spell_links(text: str) -> str:
    """``bob@example.org`` is "bob at example dot org"; the scheme of a URL is left out."""
    for pattern in (_URL, _WWW, _MAIL, _DOMAIN, _FILE):
        text = pattern.sub(_read, text)
    return text


def _read(match: re.Match[str]) -> str:
    written = match[0]
    bare = written.rstrip(_TAIL)
    after = written[len(bare) :]
    bare = _SCHEME.sub("", bare).rstrip("/")
    words = [_word(piece) for piece in _PIECE.findall(bare)]
    return " ".join(word for word in words if word) + after


def _word(piece: str) -> str:
    if piece.isdecimal():
        return digits(piece)
    if piece.isalpha():
        return _letters(piece) if len(piece) <= 3 and piece.lower() not in _SAID else piece
    return _NAMES.get(piece, "")


def _letters(piece: str) -> str:
    if piece in "aA":
        return LETTER_A
    # Short pieces without a vowel ("www", "txt") cannot be said as a word.
    if any(char in "aeiouyAEIOUY" for char in piece) and piece.lower() not in {
        "io",
        "ai",
        "uk",
        "eu",
        "us",
        "de",
    }:
        return piece
    return " ".join(piece.upper())
