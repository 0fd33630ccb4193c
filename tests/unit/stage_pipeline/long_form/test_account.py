"""What pieces come to together: texts joined, times moved, tokens counted."""

from __future__ import annotations

import pytest

from stage_pipeline.long_form.account import Account
from stage_pipeline.long_form.piece import Piece
from stage_pipeline.stages import Segment, Task, ThinkerDelta, Usage, Word

SECOND = 16_000


def heard(account: Account, start_s: int, stop_s: int, *deltas: ThinkerDelta) -> list[ThinkerDelta]:
    account.begin(Piece(start_s * SECOND, stop_s * SECOND), 40 * SECOND)
    return [*(account.add(delta) for delta in deltas), account.end()[1]]


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("He left.", "She stayed.", "He left. She stayed."),
        ("他走了。", "她留下了。", "他走了。她留下了。"),
        ("안녕하세요.", "반갑습니다.", "안녕하세요. 반갑습니다."),
        ("他说：", "OK.", "他说： OK."),
        ("", "She stayed.", "She stayed."),
    ],
)
def test_texts_are_joined_as_their_script_wants(first: str, second: str, joined: str) -> None:
    account = Account(Task.ASR)
    told = heard(account, 0, 20, ThinkerDelta(text=first)) + heard(
        account, 20, 40, ThinkerDelta(text=second)
    )
    assert account.whole().result.text == joined
    assert "".join(delta.text for delta in told) == joined


def test_times_are_those_of_the_whole_and_never_run_backwards() -> None:
    account = Account(Task.ASR)
    word = Word("Again.", 0.5, 1.0, 0.9)
    heard(account, 0, 20, ThinkerDelta(text="Tried.", segments=(Segment("Tried.", 1.0, 20.3),)))
    told = heard(
        account, 20, 40, ThinkerDelta(text="Again.", segments=(Segment("Again.", 0.1, 1.2, (word,)),))
    )
    assert told[0].segments == (Segment("Again.", 20.3, 21.2, (Word("Again.", 20.5, 21.0, 0.9),)),)
    assert account.whole().segments[0].end_s == 20.3


def test_a_piece_that_has_a_time_of_its_own_has_no_words_before_it() -> None:
    account = Account(Task.S2ST)
    account.begin(Piece(10 * SECOND, 15 * SECOND, at_ms=10_300), 40 * SECOND)
    words = (Word("Ever", 0.1, 0.5, 0.9), Word("tried.", 0.6, 1.1, 0.9))
    told = account.add(ThinkerDelta(source_text="Ever tried.", segments=(Segment("…", 0.0, 1.2, words),)))
    (segment,) = told.segments
    assert (segment.start_s, segment.end_s) == (10.3, 11.2)
    assert [(word.start_s, word.end_s) for word in segment.words] == [(10.3, 10.5), (10.6, 11.1)]


def test_words_without_times_are_a_segment_as_long_as_their_piece() -> None:
    account = Account(Task.S2ST)
    told = heard(account, 10, 25, ThinkerDelta(text="Hallo.", source_text="Hello."))
    assert told[-1].segments == account.whole().segments == (Segment("Hello.", 10.0, 25.0),)


def test_progress_is_a_share_of_the_whole() -> None:
    account = Account(Task.ASR)
    told = heard(account, 10, 30, ThinkerDelta(progress=0.5))
    assert [delta.progress for delta in told] == [0.5, 0.75]


def test_an_attempt_that_goes_on_counts_what_was_made_before() -> None:
    first = Account(Task.ASR)
    deltas = (
        ThinkerDelta(text="One.", language="en"),
        ThinkerDelta(usage=Usage(7, 3, 0), finish_reason="length"),
    )
    heard(first, 0, 20, *deltas)
    whole = first.whole()

    second = Account(Task.ASR, [whole])
    assert second.language == "en"
    heard(second, 20, 40, ThinkerDelta(text="Two.", usage=Usage(5, 2, 1), finish_reason="stop"))
    made = second.whole()
    assert made.result.text == "One. Two."
    assert (made.result.prompt_tokens, made.result.text_tokens, made.result.audio_tokens) == (12, 5, 1)
    assert made.result.finish_reason == "length"
    assert [segment.text for segment in made.segments] == ["One.", "Two."]
