"""Server-sent events: lines of text to events, as the WHATWG HTML standard reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from stagewave.record import Event


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Events with JSON data; comments (heartbeats) and events without data are passed over."""
    name, event_id = "message", ""
    data: list[str] = []
    for line in lines:
        if line == "":
            if data:
                yield Event(event_id, name, json.loads("\n".join(data)))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            event_id = value
