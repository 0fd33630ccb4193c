"""What a job's listeners are told: an append-only stream of named events, with the state moves in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import redis

from workers import keys
from workers.batch import BatchStatus
from workers.broker import MAX_BLOCK_S, Scripts, broker_errors, dumped, text
from workers.job import JsonObject
from workers.states import TERMINAL

START = "0-0"

_LAST = frozenset({*TERMINAL, *(status for status in BatchStatus if status.terminal)})


@dataclass(frozen=True, slots=True)
class Event:
    """``id`` is the stream's own, and the client's ``Last-Event-ID``."""

    id: str
    name: str
    data: JsonObject

    @property
    def terminal(self) -> bool:
        return self.name in _LAST


class EventLog:
    """``client`` for short commands, ``blocking`` for waits."""

    def __init__(self, client: redis.Redis, blocking: redis.Redis) -> None:
        self._client = client
        self._scripts = Scripts(client)
        self._blocking = blocking

    def append(self, job_id: str, name: str, data: JsonObject) -> None:
        """For what is told on the way (text, progress). State moves write theirs in their own step."""
        self._scripts.run("tell", args=(job_id, name, dumped(data)))

    def read(self, job_id: str, after: str = START, limit: int = 1000) -> list[Event]:
        with broker_errors():
            rows = self._client.xrange(keys.events(job_id), f"({after}", "+", count=limit)
        return [_event(row) for row in cast(list[tuple[bytes, dict[bytes, bytes]]], rows)]

    def follow(
        self, job_id: str, after: str = START, heartbeat_s: float = MAX_BLOCK_S
    ) -> Iterator[Event | None]:
        """Every event after ``after``, as they come; None when nothing came for ``heartbeat_s``.
        Ends after the terminal event, which a job that is deleted gets too, and when the job's stream is
        gone (expired, or deleted a while ago)."""
        while True:
            events = self._wait(job_id, after, heartbeat_s)
            if not events:
                with broker_errors():
                    there = self._client.exists(keys.events(job_id))
                if not there or self._ended_before(job_id, after):
                    return
                yield None
            for event in events:
                yield event
                if event.terminal:
                    return
                after = event.id

    def _wait(self, job_id: str, after: str, wait_s: float) -> list[Event]:
        block_ms = max(1, int(min(wait_s, MAX_BLOCK_S) * 1000))
        with broker_errors():
            answer = self._blocking.xread({keys.events(job_id): after}, count=1000, block=block_ms)
        return [_event(row) for _, rows in _streams(answer) for row in rows]

    def _ended_before(self, job_id: str, after: str) -> bool:
        """Whether ``after`` is already past the terminal event (a client that resumes too far on)."""
        with broker_errors():
            last = cast(
                list[tuple[bytes, dict[bytes, bytes]]],
                self._client.xrevrange(keys.events(job_id), count=1),
            )
        return bool(last) and _event(last[0]).terminal and _is_not_after(text(last[0][0]), after)


def _is_not_after(entry_id: str, other: str) -> bool:
    """Order of stream ids: milliseconds, then the number within one."""
    return [int(part) for part in entry_id.split("-")] <= [int(part) for part in other.split("-")]


def _streams(answer: object) -> list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]:
    return cast(list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]], answer or [])


def _event(row: tuple[bytes, dict[bytes, bytes]]) -> Event:
    entry_id, fields = row
    return Event(text(entry_id), text(fields[b"n"]), json.loads(fields[b"d"]))
