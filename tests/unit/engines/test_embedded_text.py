# ruff: noqa: E501 - the tables have one case a line
"""What the embedded voice reads aloud for what is written."""

from __future__ import annotations

import time

import pytest

from stage_pipeline.engines.embedded.clauses import cut_clauses
from stage_pipeline.engines.embedded.text import spoken_text

READINGS = [
    # numbers
    ("12", "twelve."),
    ("1,234,567 people", "one million two hundred thirty four thousand five hundred sixty seven people."),
    ("3.14 and .5 and 0.05", "three point one four and zero point five and zero point zero five."),
    ("room 007", "room zero zero seven."),
    ("order 12345678", "order one two three four five six seven eight."),
    ("1000000", "one million."),
    ("12345678901234567890", "one two three four five six seven eight nine zero one two three four five six seven eight nine zero."),
    ("It fell to -5, then rose +3.", "It fell to minus five, then rose plus three."),
    ("10k users", "ten thousand users."),
    ("1st, 22nd, 103rd, 1,000th", "first, twenty second, one hundred third, one thousandth."),
    ("1/2 cup, 3 3/4 cups, ½, 2/3", "one half cup, three and three quarters cups, one half, two thirds."),
    ("pages 10-12", "pages ten to twelve."),
    ("version 2.0.1, v1.5", "version two point zero point one, version one point five."),
    ("192.168.1.10", "one nine two dot one six eight dot one dot one zero."),
    ("call 555-123-4567", "call five five five, one two three, four five six seven."),
    ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight."),
    ("2 + 2 = 4, 5 - 3 = 2, 3 × 4 = 12", "two plus two equals four, five minus three equals two, three times four equals twelve."),
    # times
    ("3:45, 3:45 pm, 15:30, 3:05 a.m., 7pm", "three forty five, three forty five P.M, fifteen thirty, three oh five A.M, seven P.M."),
    ("12:00 and 15:00", "twelve o'clock and fifteen hundred."),
    ("At 3 p.m. He left.", "At three P.M. He left."),
    ("At 3 p.m. he left.", "At three P.M he left."),
    # money
    ("$42.50", "forty two dollars and fifty cents."),
    ("€5, 5€, £1.2 million", "five euros, five euros, one point two million pounds."),
    ("$1, $1.01, $0.99, $1,234.56", "one dollar, one dollar and one cent, ninety nine cents, one thousand two hundred thirty four dollars and fifty six cents."),
    ("$5k, $3bn, 20 USD, ¥500, 50¢, -$5", "five thousand dollars, three billion dollars, twenty dollars, five hundred yen, fifty cents, minus five dollars."),
    ("$5-10", "five to ten dollars."),
    # dates and years
    ("2024-05-06", "May sixth twenty twenty four."),
    ("May 6th 2024", "May sixth twenty twenty four."),
    ("6/5/2024 and 31.12.2023", "June fifth twenty twenty four and December thirty first twenty twenty three."),
    ("31/12/2023", "December thirty first twenty twenty three."),
    ("6 May 2024", "the sixth of May twenty twenty four."),
    ("Jan. 5", "January fifth."),
    ("in 1999, 1905, 2007 and 2010", "in nineteen ninety nine, nineteen oh five, two thousand seven and twenty ten."),
    ("1990-1995 and 1990–95", "nineteen ninety to nineteen ninety five and nineteen ninety to ninety five."),
    ("the 1990s and the '80s", "the nineteen nineties and the eighties."),
    ("2024 people", "two thousand twenty four people."),
    ("2024-05-06T15:30:00Z", "May sixth twenty twenty four at fifteen thirty U.T.C."),
    # units
    ("5 km, 1 km, 20°C, 60 mph, 3.5 kg", "five kilometers, one kilometer, twenty degrees Celsius, sixty miles per hour, three point five kilograms."),
    ("12%, 10-12 %", "twelve percent, ten to twelve percent."),
    ("100 m², 10 MB/s, 120 km/h", "one hundred square meters, ten megabytes per second, one hundred twenty kilometers per hour."),
    # abbreviations, names, acronyms
    ("Dr. Smith met Mr. & Mrs. Jones.", "Doctor Smith met Mister and Missus Jones."),
    ("12 Main St. in St. Louis", "twelve Main Street in Saint Louis."),
    ("e.g. this, i.e. that, etc. Then more.", "for example this, that is that, et cetera. Then more."),
    ("It took 5 min. to get to Acme Inc. today, max. 10 min.", "It took five minutes to get to Acme Incorporated today, maximum ten minutes."),
    ("On Mon. 5 May he sat in the Sun. It was hot.", "On Monday the fifth of May he sat in the Sun. It was hot."),
    ("in the U.S. and the U.K.", "in the U.S and the U.K."),
    ("J. K. Rowling", "J K Rowling."),
    ("NASA and the BBC asked WHO in the US", "NASA and the BBC asked W.H.O in the U.S."),
    ("WHO ARE YOU?", "WHO ARE YOU?"),
    ("MP3, B2B, COVID-19, iPhone 15, A4", "M.P three, B two B, COVID nineteen, iPhone fifteen, eh four."),
    ("Henry VIII, Pope John Paul II, World War II", "Henry the eighth, Pope John Paul the second, World War two."),
    ("I am", "I am."),
    # links and signs
    ("bob@example.org", "bob at example dot org."),
    ("https://www.example.com/a?b=1", "W W W dot example dot com slash eh question mark B equals one."),
    ("report.pdf", "report dot P D F."),
    ("Tom & Jerry, R&D, #1, C++, C#", "Tom and Jerry, R and D, number one, C plus plus, C sharp."),
    ("**bold** and `code`", "bold and code."),
    ("# Title\n- one\n- two", "Title.\none.\ntwo."),
    ("Wait… what?! Yes — now.", "Wait, what? Yes, now."),
    ("“Quoted,” he said, ‘don’t’.", "Quoted, he said, don't."),
    # other scripts
    ("订单 12345 于 2024-05-06 ship to Köln", "Ding Dan twelve thousand three hundred forty five Yu May sixth twenty twenty four ship to Koln."),
    ("Привет, café", "Privet, cafe."),
    ("１２３", "one hundred twenty three."),
    # nothing to say
    ("😀🎉!!! … —", ""),
    ("", ""),
    ("()[]{}", ""),
]  # fmt: skip


@pytest.mark.parametrize(("written", "spoken"), READINGS)
def test_written_text_is_read_as_a_person_would(written: str, spoken: str) -> None:
    assert spoken_text(written) == spoken


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "1,",
        "1.",
        "1-",
        "1/",
        "1:",
        "a",
        "A.",
        "a@",
        "a@b.",
        "http://",
        "www.",
        "$",
        "#",
        "-",
        "' ",
        "\n",
        "\n ",
        "( ",
    ]
    + [
        "Henry I ",
        "+1 ",
        "555-",
        "May ",
        "é",
        "😀",
        "°",
        "a1",
        "<a",
        "Dr. A",
        "e.g. ",
        " ",
        "\t",
        "'",
        "1990-",
    ],
)
def test_no_text_of_the_longest_allowed_size_takes_long(unit: str) -> None:
    text = (unit * 20_000)[:20_000]

    began = time.perf_counter()
    spoken_text(text)

    # A pattern that goes back over the text takes ten seconds and more.
    assert time.perf_counter() - began < 3


def test_a_long_first_sentence_is_cut_for_early_sound_and_nothing_is_lost() -> None:
    sentence = "This is a long sentence, with a mark here and there, and it goes on and on; it ends only after a good while, as some do,"
    text = f"{sentence} which is to say here at last. And this one is short. So is this."

    clauses = list(cut_clauses(text))

    assert len(clauses[0].text) <= 90
    assert " ".join(clause.text for clause in clauses) == text
    assert clauses[0].pause_s == 0


def test_sentences_and_paragraphs_are_apart_and_parts_of_a_sentence_are_not() -> None:
    words = "word " * 80
    clauses = list(
        cut_clauses(
            f"This sentence comes first of all. {words.strip()}.\nA new paragraph begins right here."
        )
    )

    pauses = [clause.pause_s for clause in clauses]

    assert pauses == [0.0, 0.2, 0.0, 0.5]
    assert all(len(clause.text) <= 240 for clause in clauses)


def test_a_word_without_end_is_cut() -> None:
    clauses = list(cut_clauses("a" * 1000 + "."))

    assert max(len(clause.text) for clause in clauses) <= 240
