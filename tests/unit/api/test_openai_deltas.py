import pytest

from api.openai_deltas import TextDeltas
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.events import Event


def begun(attempt: int) -> Event:
    return Event("1-0", "stage", {"stage": "thinker", "state": "running", "attempt": attempt})


def heard(text: str) -> Event:
    return Event("1-1", "text", {"text": text})


def test_text_is_given_as_it_comes():
    deltas = TextDeltas()
    events = [begun(1), heard("It was"), Event("1-2", "progress", {}), heard(" the best")]
    assert [deltas.of(event) for event in events] == ["", "It was", "", " the best"]


def test_what_a_second_attempt_says_again_is_not_told_twice():
    deltas = TextDeltas()
    events = [begun(1), heard("It was"), begun(2), heard("It"), heard(" was the"), heard(" best")]
    assert [deltas.of(event) for event in events] == ["", "It was", "", "", " the", " best"]


def test_another_stage_that_begins_is_no_new_attempt_at_the_text():
    deltas = TextDeltas()
    speaking = Event("1-0", "stage", {"stage": "token2wav", "state": "running", "attempt": 1})
    ready = Event("1-0", "stage", {"stage": "thinker", "state": "ready"})
    assert [deltas.of(event) for event in (heard("a"), speaking, ready, heard("b"))] == ["a", "", "", "b"]


def test_a_second_attempt_that_says_something_else_is_an_error():
    deltas = TextDeltas()
    for event in (begun(1), heard("It was"), begun(2)):
        deltas.of(event)
    with pytest.raises(StagewaveError) as caught:
        deltas.of(heard("He is"))
    assert caught.value.code is ErrorCode.WORKER_LOST
