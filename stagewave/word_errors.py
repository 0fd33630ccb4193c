"""Word error rate: how far what was recognised is from what was said."""

from __future__ import annotations

import re

_IN_NUMBER = re.compile(r"(?<=\d)[.,:](?=\d)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words(text: str) -> list[str]:
    """Its words without case and punctuation; 9:30, 9.30 and 930 are the same word."""
    return [word.replace("’", "'").casefold() for word in _WORD.findall(_IN_NUMBER.sub("", text))]


def word_error_rate(said: str, recognised: str) -> float:
    """Words put in, left out or changed, over the words that were said (at least one)."""
    reference, heard = words(said), words(recognised)
    costs = list(range(len(heard) + 1))
    for row, word in enumerate(reference, 1):
        diagonal, costs[0] = costs[0], row
        for column, other in enumerate(heard, 1):
            changed = diagonal + (word != other)
            diagonal = costs[column]
            costs[column] = min(changed, costs[column] + 1, costs[column - 1] + 1)
    return costs[-1] / max(1, len(reference))
