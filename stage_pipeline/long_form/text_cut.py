"""Where a long text is cut: at paragraphs and sentences, a long sentence at clauses, never in a word.

Sentences are found by sentencex, which knows the marks and abbreviations of some 250 languages, Chinese
and Japanese among them, and gives a text of any length back in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import grapheme
import sentencex

from stage_pipeline.languages import base_language
from stage_pipeline.long_form.piece import Piece
from stage_pipeline.long_form.scripts import in_word, letters

# A word or two alone sound clipped: they go together with what follows.
_LEAST_LETTERS = 40
# What ends so early may be an abbreviation that is not known in this language.
_ABBREVIATION_CHARS = 5
# The silence on top of what a voice leaves itself.
_PARAGRAPH_PAUSE_MS = 500
_SENTENCE_PAUSE_MS = 200
_CLAUSE_PAUSE_MS = 50

_DEFAULT_LANGUAGE = "en"
"""For a text whose language was not said: its marks and those of other scripts are all known."""

_PARAGRAPH_END = re.compile(r"\s*\n[^\S\n]*\n\s*")
_CLOSERS = r"[\"'”’»)\]」』）】》]*"
# Western marks are followed by a space (or they stand in a number or a time), those of Chinese and
# Japanese by nothing.
_MARKS = (
    re.compile(rf"(?:[;:.!?…]{_CLOSERS}|\s[–—])(?=\s)|[；：。！？…]{_CLOSERS}|——|—"),
    re.compile(rf"[,،]{_CLOSERS}(?=\s)|[，、]{_CLOSERS}"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, or a part of a long one: ``text[start:stop]``."""

    start: int
    stop: int
    letters: int
    pause_after_ms: int


def cut_text(text: str, longest_chars: int, language: str | None = None) -> Iterator[Piece]:
    """Pieces that hold all of a text that is spoken, in order, each as long as ``longest_chars`` letters of
    an alphabet at most; a text that is no longer comes back whole.

    The first is one sentence, so that its sound does not wait for more; the others are as long as they may
    be. A piece ends with its paragraph.
    """
    if letters(text) <= longest_chars:
        yield Piece(0, len(text), text)
        return
    held: list[_Unit] = []
    first = True
    for unit in _units(text, longest_chars, language):
        if held and sum(one.letters for one in held) + unit.letters > longest_chars:
            yield from _piece(text, held)
            held, first = [], False
        held.append(unit)
        long_enough = sum(one.letters for one in held) >= _LEAST_LETTERS
        if long_enough and (first or unit.pause_after_ms == _PARAGRAPH_PAUSE_MS):
            yield from _piece(text, held)
            held, first = [], False
    yield from _piece(text, held)


def _piece(text: str, units: list[_Unit]) -> Iterator[Piece]:
    if not units:
        return
    start, stop = units[0].start, units[-1].stop
    spoken = text[start:stop].strip()
    if any(character.isalnum() for character in spoken):  # a row of asterisks is not
        yield Piece(start, stop, spoken, units[-1].pause_after_ms)


def _units(text: str, longest_chars: int, language: str | None) -> Iterator[_Unit]:
    code = base_language(language) or _DEFAULT_LANGUAGE
    for start, stop in _paragraphs(text):
        at = end = start
        said = text[start:stop].rstrip()
        for sentence in sentencex.segment(code, said):
            end += len(sentence)
            last = end == start + len(said)
            if not last and len(text[at:end].strip()) <= _ABBREVIATION_CHARS:
                continue
            spoken_end = at + len(text[at:end].rstrip())
            while (
                size := letters(head := text[at : min(spoken_end, at + longest_chars + 1)])
            ) > longest_chars:
                cut = at + _clause_end(head, max(1, longest_chars * len(head) // size))
                yield _Unit(at, cut, letters(text[at:cut]), _CLAUSE_PAUSE_MS)
                at = cut
            pause_ms = _PARAGRAPH_PAUSE_MS if last else _SENTENCE_PAUSE_MS
            yield _Unit(at, end, letters(text[at:end]), pause_ms)
            at = end


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in [*(match.end() for match in _PARAGRAPH_END.finditer(text)), len(text)]:
        if end > start:
            yield start, end
        start = end


def _clause_end(sentence: str, longest_chars: int) -> int:
    """Where to cut a sentence that is too long: at the strongest mark that leaves a good part before it,
    else before a word, else, in a script without spaces, between two characters."""
    for marks in _MARKS:
        # One character more, since a mark counts by what follows.
        ends = [match.end() for match in marks.finditer(sentence[: longest_chars + 1])]
        usable = [end for end in ends if longest_chars // 3 <= end <= longest_chars]
        if usable:
            return usable[-1]
    end = longest_chars
    while end > longest_chars // 3 and in_word(sentence[end - 1]) and in_word(sentence[end]):
        end -= 1
    if end == longest_chars // 3:  # no word is that long
        end = longest_chars
    return grapheme.safe_split_index(sentence, end) or longest_chars
