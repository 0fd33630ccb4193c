"""The passes over a text, in the order in which they must run."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.abbreviations import (
    expand_abbreviations,
    spell_acronyms,
    split_mixed,
)
from stage_pipeline.engines.embedded.text.dates import spell_dates, spell_years
from stage_pipeline.engines.embedded.text.letters import latinise
from stage_pipeline.engines.embedded.text.links import spell_links
from stage_pipeline.engines.embedded.text.money import spell_money
from stage_pipeline.engines.embedded.text.roman import spell_roman
from stage_pipeline.engines.embedded.text.sequences import spell_numbers, spell_sequences
from stage_pipeline.engines.embedded.text.symbols import name_symbols, tidy
from stage_pipeline.engines.embedded.text.times import spell_times
from stage_pipeline.engines.embedded.text.units import spell_measures

# Each pass turns what it knows into words, so that later ones, which are less particular, do not see it.
_PASSES = (
    spell_links,
    spell_dates,
    spell_times,
    expand_abbreviations,
    spell_money,
    spell_measures,
    spell_roman,
    spell_sequences,
    spell_years,
    split_mixed,
    name_symbols,
    spell_numbers,
    name_symbols,
    spell_acronyms,
    latinise,
)

_UNSPOKEN = re.compile(r"[^A-Za-z' .,;:?!\n-]")
_LOOSE_MARK = re.compile(r"(?<![A-Za-z])['-]+|['-]+(?![A-Za-z])")
_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r" ?\n[\n ]*")
# A long run of one letter or sign says nothing more than a short one, and costs the patterns dear.
_RUN = re.compile(r"([^\d\s])\1{3,}")
_BEFORE_MARK = re.compile(r"\s+(?=[.,;:?!])")
_MARKS = re.compile(r"[.,;:?!](?:\s*[.,;:?!])+")
_LINE = re.compile(r"(?<!\n)\n(?!\n)")


def spoken_text(text: str) -> str:
    """A text as it is read aloud, a paragraph a line; empty if nothing can be said.

    The result has only Latin letters, apostrophes, hyphens, spaces and ``.,;:?!``.
    """
    text = _RUN.sub(r"\1\1\1", _collapsed(text))
    text = _collapsed(tidy(text))
    text = _LINE.sub(_line_break, text)
    for spell in _PASSES:
        text = spell(text)
    text = text.replace("(", ", ").replace(")", ", ").replace("[", ", ").replace("]", ", ")
    text = _LOOSE_MARK.sub(" ", _collapsed(_UNSPOKEN.sub(" ", text)))
    lines = (_line(line) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _collapsed(text: str) -> str:
    """Runs of spaces as one; one newline, or two where there was a blank line."""
    return _BLANK_LINES.sub(lambda m: "\n\n" if m[0].count("\n") > 1 else "\n", _SPACES.sub(" ", text))


def _line_break(match: re.Match[str]) -> str:
    # Text wrapped at a width flows on; a line that begins with a capital after a finished one is a new
    # line.
    before = match.string[max(match.start() - 1, 0) : match.start()]
    following = match.string[match.end() : match.end() + 1]
    return " " if following.islower() or before == "," else "\n"


def _line(text: str) -> str:
    text = _BEFORE_MARK.sub("", _SPACES.sub(" ", text)).strip()
    text = _MARKS.sub(_strongest, text).lstrip(".,;:?! ")
    if not any(char.isalpha() for char in text):
        return ""
    return text if text[-1] in ".?!" else f"{text.rstrip(',;:')}."


def _strongest(match: re.Match[str]) -> str:
    marks = match[0]
    return next(mark for mark in "?!.;:," if mark in marks)
