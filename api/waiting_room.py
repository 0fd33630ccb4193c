"""How many requests may wait or listen at once, and when they must stop.

A request that waits holds a thread. Seats are fewer than threads, so however many wait, there is a thread
for a quick answer.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flask import request

from stage_pipeline.errors import ErrorCode, StagewaveError

TICK_S = 2.0
"""How often a waiter looks whether the server stops or its client has gone: a stop takes this long."""


class Seat:
    """One waiter's place. ``leave`` may be called more than once, from any thread."""

    def __init__(self, room: WaitingRoom, peer: socket.socket | None) -> None:
        self._room = room
        self._peer = peer
        self._left = False

    @property
    def over(self) -> bool:
        """Whether there is nothing left to wait for: the server stops, or the client has gone."""
        return self._room.closed or self._client_gone()

    def leave(self) -> None:
        with self._room.lock:
            if not self._left:
                self._left = True
                self._room.taken -= 1

    def _client_gone(self) -> bool:
        if self._peer is None:
            return False
        try:
            # Nothing to read blocks; bytes are the next request; an end is a client that hung up.
            return self._peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except (BlockingIOError, InterruptedError):
            return False
        except (OSError, ValueError):
            return True


class WaitingRoom:
    """``limit`` seats; ``close`` tells everybody in it to come to an end."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self.lock = threading.Lock()
        self.closed = False

    def close(self) -> None:
        """Safe in a signal handler: it takes no lock."""
        self.closed = True

    def sit(self) -> Seat | None:
        """A seat for the current request, or None when all are taken."""
        with self.lock:
            if self.closed or self.taken >= self.limit:
                return None
            self.taken += 1
        return Seat(self, request.environ.get("gunicorn.socket"))

    def sit_or_refuse(self) -> Seat:
        """A seat, or ``StagewaveError(too_many_waiters)``."""
        seat = self.sit()
        if seat is None:
            raise StagewaveError(
                ErrorCode.TOO_MANY_WAITERS, "too many clients listen already: poll the job, or come back"
            )
        return seat

    @contextmanager
    def seated(self) -> Iterator[Seat | None]:
        seat = self.sit()
        try:
            yield seat
        finally:
            if seat is not None:
                seat.leave()
