"""Word error rates are counted as the field counts them."""

from __future__ import annotations

import pytest
from jiwer import wer

from stagewave.word_errors import word_error_rate, words


def test_case_and_punctuation_are_no_errors() -> None:
    assert word_error_rate("It's the 9:30 train – for $42.50!", "it’s the 930 train, for 42,50") == 0


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("a b c d", "a b c d"),
        ("a b c d", "a x c d"),
        ("a b c d", "a c d"),
        ("a b c d", "a b b c d e"),
        ("a b c d", ""),
        ("the cat sat on the mat", "cat sat in the the mat now"),
    ],
)
def test_the_rate_is_the_one_that_jiwer_counts(said: str, heard: str) -> None:
    assert word_error_rate(said, heard) == pytest.approx(wer(said, heard))


def test_words_that_nobody_said_count_too() -> None:
    assert word_error_rate("", "you you") == 2


def test_scripts_without_case_have_words_too() -> None:
    assert words("甚至出现交易, Straße") == ["甚至出现交易", "strasse"]
