"""Letters the voice cannot say, in letters it can: accents dropped, other scripts transliterated."""

from __future__ import annotations

import unicodedata

from anyascii import anyascii


def has_speakable(text: str) -> bool:
    """Whether anything in a text can be said by an English voice: a Latin letter or a digit."""
    return any(char.isdecimal() or _is_latin(char) for char in text)


def has_letters(text: str) -> bool:
    """Whether a text has letters of any script."""
    return any(char.isalpha() for char in text)


def latinise(text: str) -> str:
    """``Köln`` is "Koln", ``北京`` "Bei Jing"; marks and symbols without a sound are left as they are."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _latin(char) for char in text)


def _latin(char: str) -> str:
    category = unicodedata.category(char)
    if category.startswith("L"):
        plain = anyascii(char)
        # Ideographs come as one capitalised syllable each: words of their own.
        return f" {plain} " if category == "Lo" and len(plain) > 1 and ord(char) > 0x2E00 else plain
    if category == "Nd":
        return str(unicodedata.decimal(char))
    return "" if category == "Mn" else char


def _is_latin(char: str) -> bool:
    return char.isalpha() and (
        char.isascii() or unicodedata.name(char, "").startswith(("LATIN", "FULLWIDTH LATIN"))
    )
