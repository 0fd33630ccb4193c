"""Following a job's events over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Iterator

from stagewave.client.call import Call, path_of
from stagewave.client.patience import Patience
from stagewave.client.sse import EventReader
from stagewave.errors import ClientError, Unreachable
from stagewave.record import TERMINAL, Event

NOTHING_MORE = 204


class Following:
    """Where a follower is. Ask for ``next_call``, tell it the answer's status and bytes, and then that
    the connection ended, until there is no next call."""

    def __init__(self, job_id: str, after: str | None, patience: Patience) -> None:
        self._path = path_of("jobs", job_id, "events")
        self._after = after
        self._tries = patience.tries()
        self._pause_s = 0.0
        self._over = False
        self._reader = EventReader()

    def next_call(self) -> Call | None:
        if self._over:
            return None
        self._reader = EventReader()
        headers = {"Last-Event-ID": self._after} if self._after else {}
        return Call(method="GET", path=self._path, headers=headers, after_s=self._pause_s)

    def answered(self, status: int) -> None:
        self._over = status == NOTHING_MORE

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that this piece of the answer ends."""
        for event in self._reader.feed(piece):
            self._tries.succeeded()
            self._after = event.id or self._after
            self._over = event.name in TERMINAL
            yield event

    def ended(self, error: ClientError | None = None) -> None:
        """The connection ended, by itself (as when the server restarts) or by an error; raises that when
        it is not to be borne."""
        if not self._over:
            self._pause_s = self._tries.pause_s(error or Unreachable("the event stream broke"))
