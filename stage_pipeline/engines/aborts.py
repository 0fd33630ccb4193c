"""Which requests run in an engine that looks between its steps whether to go on; how they are stopped."""

from __future__ import annotations

import threading


class Aborts:
    def __init__(self) -> None:
        self._running: dict[str, threading.Event] = {}

    @property
    def running(self) -> int:
        """Requests under way."""
        return len(self._running)

    def begin(self, request_id: str) -> threading.Event:
        """Is set when the request is to stop."""
        stop = self._running[request_id] = threading.Event()
        return stop

    def end(self, request_id: str, stop: threading.Event) -> None:
        """Forget a request, unless another has begun under its name meanwhile."""
        if self._running.get(request_id) is stop:
            del self._running[request_id]

    def abort(self, request_id: str) -> None:
        stop = self._running.get(request_id)
        if stop is not None:
            stop.set()

    def abort_all(self) -> None:
        for stop in list(self._running.values()):
            stop.set()
