"""Server-sent events become events."""

from __future__ import annotations

from stagewave.client.sse import EventReader
from stagewave.record import Event


def read_events(lines: list[str]) -> list[Event]:
    """Of what comes in pieces that end anywhere."""
    sent = "".join(f"{line}\n" for line in lines).encode()
    reader = EventReader()
    return [event for at in range(0, len(sent), 3) for event in reader.feed(sent[at : at + 3])]


def test_an_event_has_its_id_its_name_and_its_data() -> None:
    lines = ["id: 5-0", "event: text", 'data: {"text": "hello"}', ""]

    assert read_events(lines) == [Event("5-0", "text", {"text": "hello"})]


def test_data_over_several_lines_is_one_value() -> None:
    lines = ["event: text", 'data: {"text":', 'data: "hello"}', ""]

    assert read_events(lines) == [Event("", "text", {"text": "hello"})]


def test_heartbeats_and_events_without_data_are_passed_over() -> None:
    lines = ["retry: 1000", "", ": still here", "", "event: status", "", "id: 6-0", "data: {}", ""]

    assert read_events(lines) == [Event("6-0", "message", {})]


def test_an_event_that_was_cut_off_is_no_event() -> None:
    assert read_events(["id: 7-0", 'data: {"text": "hal']) == []


def test_what_unicode_calls_a_line_break_breaks_no_event() -> None:
    lines = ["id: 8-0", 'data: {"text": "one\u2028two\x85three"}', ""]

    assert read_events(lines) == [Event("8-0", "message", {"text": "one\u2028two\x85three"})]
