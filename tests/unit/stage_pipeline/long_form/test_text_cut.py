"""Long text in pieces: nothing is lost, and no sentence, word or character is cut that need not be."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest

from stage_pipeline.long_form.scripts import letters
from stage_pipeline.long_form.text_cut import cut_text

ENGLISH = (
    "Dr. Smith met Mr. J. R. R. Tolkien at 3.30 p.m. on Jan. 5th. It cost $4.50! “Really?” she asked. "
    "He said “No.” Then he left, and nobody saw him again until the evening of the 3rd. "
)
GERMAN = "Am 3. Oktober kam z. B. Herr Dr. Müller. Er sagte: „Gut.“ Dann ging er usw. nach Hause. "
CHINESE = "今天天气很好。我们去公园吧！“你来吗？”他问。她说：“好的。”然后他们走了很远的路。圆周率是3.14。"
JAPANESE = "今日は天気がいいです。公園に行きましょう！「来ますか？」と彼は聞いた。「はい。」そして行った。"
ENDS = ".!?。！？”」“"


def pieces(text: str, longest_chars: int, language: str | None = None) -> list[str]:
    return [piece.text for piece in cut_text(text, longest_chars, language)]


def without_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", ENGLISH), ("de", GERMAN), ("zh", CHINESE), ("ja", JAPANESE), (None, CHINESE)],
)
def test_a_piece_ends_with_a_sentence_and_all_of_them_are_the_text(language: str | None, text: str) -> None:
    whole = text * 40
    cut = pieces(whole, 200, language)

    assert without_spaces("".join(cut)) == without_spaces(whole)
    assert len(cut) > 10
    assert all(letters(piece) <= 200 and piece[-1] in ENDS for piece in cut)
    abbreviations = ("Dr.", "Mr.", "R.", "p.m.", "Jan.", "z.", "B.", "3.", "usw.")
    assert not any(piece.endswith(abbreviations) for piece in cut)


def test_a_text_that_is_short_enough_is_left_as_it_is() -> None:
    text = "  One. Two.\n\nThree. "
    (piece,) = cut_text(text, 300)
    assert (piece.text, piece.start, piece.stop) == (text, 0, len(text))


def test_the_first_piece_is_one_sentence() -> None:
    first, second, *_ = pieces("This is the first sentence of a long text. " * 50, 300)
    assert first == "This is the first sentence of a long text."
    assert len(second) > 200


def test_pauses_tell_paragraphs_from_sentences_from_clauses() -> None:
    sentence = "Nobody had seen the man before he came to this town."
    clause = "and then he walked on for many a mile, "
    text = f"{sentence}\n\n{sentence} {sentence} {sentence}\n\n{clause * 4}until he came home."
    cut = list(cut_text(text, 110))
    assert [piece.pause_after_ms for piece in cut] == [500, 200, 500, 50, 500]
    assert cut[3].text.endswith(",")


def test_a_line_break_inside_a_paragraph_ends_nothing() -> None:
    text = "It was a dark\nand stormy night in the old house on the hill above the\nharbour. " * 8
    assert all(piece.endswith("harbour.") for piece in pieces(text, 200))


@pytest.mark.parametrize(
    "text",
    [
        "a man and a dog went down the long road " * 40,
        "they paid 3,000 dollars at 12:30 sharp for it " * 40,
    ],
)
def test_run_on_text_is_cut_between_words(text: str) -> None:
    cut = pieces(text, 100)
    assert " ".join(cut) == text.strip()
    assert all(50 < len(piece) <= 100 for piece in cut[:-1])


def test_run_on_text_without_spaces_is_cut_between_characters() -> None:
    text = "他走了很远的路没有停下来" * 40
    assert "".join(pieces(text, 100)) == text
    mixed = "这是一家位于斯图加特的公司叫做Stuttgarter-Hofbräu已经有很多年" * 20
    for piece in pieces(mixed, 100):
        assert re.findall(r"[A-Za-zä-]+", piece) in ([], ["Stuttgarter-Hofbräu"]), piece


@pytest.mark.parametrize("cluster", ["क्षि", "👨‍👩‍👧x", unicodedata.normalize("NFD", "é")])
def test_what_is_one_character_to_a_reader_is_never_cut(cluster: str) -> None:
    for piece in pieces(cluster * 300, 100):
        assert piece == cluster * (len(piece) // len(cluster))


def test_a_row_of_asterisks_is_no_piece() -> None:
    sentence = "Nobody had seen the man before he came to this town."
    assert pieces(f"{sentence}\n\n* * *\n\n{sentence}\n\n***", 60) == [sentence, f"* * *\n\n{sentence}"]


def test_a_book_is_cut_in_no_time() -> None:
    for text in (ENGLISH * 900, "字" * 200_000, "x" * 200_000, "?! " * 60_000):
        began = time.process_time()
        list(cut_text(text, 300))
        assert time.process_time() - began < 2
