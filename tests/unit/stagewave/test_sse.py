"""Server-sent events become events."""

from __future__ import annotations

from stagewave.record import Event
from stagewave.sse import read_events


def test_an_event_has_its_id_its_name_and_its_data() -> None:
    lines = ["id: 5-0", "event: text", 'data: {"text": "hello"}', ""]

    assert list(read_events(lines)) == [Event("5-0", "text", {"text": "hello"})]


def test_data_over_several_lines_is_one_value() -> None:
    lines = ["event: text", 'data: {"text":', 'data: "hello"}', ""]

    assert list(read_events(lines)) == [Event("", "text", {"text": "hello"})]


def test_heartbeats_and_events_without_data_are_passed_over() -> None:
    lines = ["retry: 1000", "", ": still here", "", "event: status", "", "id: 6-0", "data: {}", ""]

    assert list(read_events(lines)) == [Event("6-0", "message", {})]


def test_an_event_that_was_cut_off_is_no_event() -> None:
    assert list(read_events(["id: 7-0", 'data: {"text": "hal'])) == []
