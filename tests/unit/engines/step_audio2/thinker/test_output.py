"""Text and audio tokens out of one stream of ids, and when a thread is woken for them."""

from __future__ import annotations

import threading

import pytest

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.engines.step_audio2.thinker.output import Answer, Spelling

POLICY = FixedWindows()


def answer(vocabulary, prior=(), longest=None) -> Answer:
    return Answer(vocabulary, POLICY, prior, longest)


def code(vocabulary, number: int) -> int:
    return vocabulary.first_code + number


def woken(made: Answer) -> bool:
    """Whether there is something to take now."""
    parts = []
    thread = threading.Thread(target=lambda: parts.append(made.take()), daemon=True)
    thread.start()
    thread.join(0.1)
    if not parts:
        made.end("stop")
        thread.join()
        return False
    return True


def test_text_and_audio_are_told_apart_by_their_ids(vocabulary):
    made = answer(vocabulary)
    text = vocabulary.ids("Hi")
    pad, end = vocabulary.id_of("<tts_pad>"), vocabulary.tts_end
    ids = [text[0], code(vocabulary, 5), code(vocabulary, 6560), text[1], pad, code(vocabulary, 6561), end]
    made.add(ids, "stop", 9)
    part = made.take()
    assert part.ids == tuple(ids)
    assert (part.text_ids, part.codes) == (tuple(text), (5, 6560))
    assert (part.finish, part.prompt_tokens) == ("stop", 9)


def test_a_window_s_last_token_wakes_the_thread_and_no_token_before(vocabulary):
    made = answer(vocabulary)
    for number in range(27):
        made.add([code(vocabulary, number)], None, 1)
    assert not woken(made)
    made = answer(vocabulary)
    for number in range(28):
        made.add([code(vocabulary, number)], None, 1)
    assert made.take().codes == tuple(range(28))
    for number in range(24):
        made.add([code(vocabulary, number)], None, 1)
    assert not woken(made)


def test_windows_go_on_where_an_earlier_attempt_stopped(vocabulary):
    made = answer(vocabulary, prior=range(28))
    made.add([code(vocabulary, 1)] * 24, None, 1)
    assert not woken(made)
    made = answer(vocabulary, prior=range(28))
    made.add([code(vocabulary, 1)] * 25, None, 1)
    assert woken(made)


def test_text_wakes_the_thread_by_itself(vocabulary):
    made = answer(vocabulary)
    made.add(vocabulary.ids("a"), None, 1)
    assert woken(made)


def test_an_answer_is_cut_at_its_longest_to_the_token(vocabulary):
    made = answer(vocabulary, prior=(1, 2), longest=5)
    assert not made.add([code(vocabulary, 3)], None, 1)
    assert made.add([code(vocabulary, number) for number in (4, 5, 6, 7)], None, 1)
    part = made.take()
    assert (part.codes, part.finish) == ((3, 4, 5), "length")
    assert part.ids == tuple(code(vocabulary, number) for number in (3, 4, 5))


def test_an_error_reaches_the_thread_that_waits(vocabulary):
    made = answer(vocabulary)
    threading.Timer(0.05, made.end, ("abort", ValueError("gone"))).start()
    with pytest.raises(ValueError, match="gone"):
        made.take()


def test_what_ended_first_counts(vocabulary):
    made = answer(vocabulary)
    made.add([code(vocabulary, 1)], "stop", 1)
    made.end("abort")
    assert made.take().finish == "stop"


@pytest.mark.parametrize("text", ["héllo", "你好，世界", "👩‍👩‍👧 ok", "plain"])
def test_text_comes_in_whole_characters(text, vocabulary):
    spelling = Spelling(vocabulary)
    pieces = [spelling.add([number]) for number in vocabulary.ids(text)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_what_is_no_character_does_not_hold_up_what_is(vocabulary):
    spelling = Spelling(vocabulary)
    lone = vocabulary.ids("é")[0]
    said = "".join(spelling.add([number]) for number in [lone, *vocabulary.ids("abc")])
    assert said.endswith("abc")
    assert spelling.add([lone]) == ""
    assert spelling.add([], last=True) == "\ufffd"


def test_special_tokens_are_no_text(vocabulary):
    spelling = Spelling(vocabulary)
    assert spelling.add([*vocabulary.ids("a"), vocabulary.id_of("<|EOT|>")], last=True) == "a"
