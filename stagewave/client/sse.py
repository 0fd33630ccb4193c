"""Server-sent events: bytes to events, as the WHATWG HTML standard reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from stagewave.client.lines import Lines
from stagewave.record import Event


class EventReader:
    """Takes what comes on one connection. Events have JSON data; comments (heartbeats) and events without
    data are passed over."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._name = "message"
        self._id = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that this piece ends."""
        for line in self._lines.feed(piece):
            if line == "":
                if self._data:
                    yield Event(self._id, self._name, json.loads("\n".join(self._data)))
                self._name, self._data = "message", []
            else:
                self._take(line)

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
