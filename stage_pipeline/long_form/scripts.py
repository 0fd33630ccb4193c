"""Which scripts put spaces between words: it decides where words end, how texts are joined, and about how
long a text is when it is spoken."""

from __future__ import annotations

import re

_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u2e80-\u312f\u31a0-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f\U00020000-\U0003ffff]"  # CJK, kana
)


def in_word(character: str) -> bool:
    """Whether it holds a word together, in a script that puts spaces between words."""
    return not character.isspace() and not _UNSPACED.match(character)


def letters(text: str) -> int:
    """The length of a text in letters of an alphabet: a character that stands for a syllable or a word
    takes as long to say as three."""
    return len(text) + 2 * len(_UNSPACED.findall(text))


def joint(before: str, after: str) -> str:
    """What goes between two texts that follow each other: a space, or nothing in Chinese, say."""
    if not before or not after or before[-1].isspace() or after[0].isspace():
        return ""
    return "" if _UNSPACED.match(before[-1]) and _UNSPACED.match(after[0]) else " "
