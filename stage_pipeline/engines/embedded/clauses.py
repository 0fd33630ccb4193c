"""Where spoken text is cut: each clause is voiced as an utterance of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A whole sentence is spoken best. A longer first one is cut for the sake of early sound, later ones only
# where they would take much memory; what is cut off is at most so long.
_FIRST_CHARS, _FIRST_CUT_CHARS = 140, 90
_CLAUSE_CHARS = 240
# Cut at a mark only where both sides are worth an utterance.
_LEAST_CHARS = 16
# An utterance of one or two words sounds clipped: it goes together with the next sentence.
_SHORT_CHARS = 24

_SENTENCE_END = re.compile(r"[.?!](?=\s|$)")
_STRONG_MARK = re.compile(r"[;:](?=\s)")
_COMMA = re.compile(r",(?=\s)")

_SENTENCE_PAUSE_S = 0.2
_PARAGRAPH_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of spoken text, and the silence before it on top of what the voice leaves itself."""

    text: str
    pause_s: float


def cut_clauses(text: str, *, first: bool = True) -> Iterator[Clause]:
    """Cut spoken text (as ``spoken_text`` gives it) at sentences, long ones at marks, then between words.

    ``first`` says that nothing has been said before this text.
    """
    for paragraph in text.split("\n"):
        pause_s = _PARAGRAPH_PAUSE_S
        for sentence in _sentences(paragraph):
            for piece in _pieces(sentence, first=first):
                yield Clause(piece, 0.0 if first else pause_s)
                first = False
                # Inside a sentence the voice's own tail is pause enough.
                pause_s = 0.0
            pause_s = _SENTENCE_PAUSE_S


def _sentences(paragraph: str) -> Iterator[str]:
    held = ""
    start = 0
    for end in [match.end() for match in _SENTENCE_END.finditer(paragraph)] + [len(paragraph)]:
        sentence = paragraph[start:end].strip()
        start = end
        if not sentence:
            continue
        held = f"{held} {sentence}" if held else sentence
        if len(held) > _SHORT_CHARS:
            yield held
            held = ""
    if held:
        yield held


def _pieces(sentence: str, *, first: bool) -> Iterator[str]:
    if first and len(sentence) > _FIRST_CHARS:
        cut = _cut(sentence, _FIRST_CUT_CHARS)
        yield sentence[:cut].strip()
        sentence = sentence[cut:].strip()
    while len(sentence) > _CLAUSE_CHARS:
        cut = _cut(sentence, _CLAUSE_CHARS)
        yield sentence[:cut].strip()
        sentence = sentence[cut:].strip()
    if sentence:
        yield sentence


def _cut(sentence: str, limit: int) -> int:
    """Where to cut a sentence longer than ``limit``: there at the latest, between words if it can be."""
    for mark in (_STRONG_MARK, _COMMA):
        ends = [match.end() for match in mark.finditer(sentence, _LEAST_CHARS, limit)]
        usable = [end for end in ends if len(sentence) - end >= _LEAST_CHARS]
        if usable:
            return usable[-1]
    space = sentence.rfind(" ", 1, limit)
    return space if space > 0 else limit
