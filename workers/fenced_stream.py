"""A Redis stream of one job that only the current attempt may write, each entry once.

The fence and the sequence number live beside the stream (``lua/append.lua``), so a worker that was taken
for dead and wakes up later changes nothing, and a retried append adds nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import redis

from workers.broker import MAX_BLOCK_S, Scripts, broker_errors

START = b"0-0"
_BATCH = 256


class FencedOff(Exception):
    """A later attempt has the stream; this one must stop."""


class FencedStream:
    """``client`` for short commands, ``blocking`` for waits; ``keep_bytes`` bounds it (0: all)."""

    def __init__(
        self, client: redis.Redis, blocking: redis.Redis, *, ttl_s: float, keep_bytes: int = 0
    ) -> None:
        self._client = client
        self._blocking = blocking
        self._scripts = Scripts(client)
        self._ttl_ms = int(ttl_s * 1000)
        self._keep_bytes = keep_bytes

    def open(self, stream: str, head: str, attempt: int, *, afresh: bool = False) -> int:
        """Take the writer's place; the last sequence number there (-1: none). ``afresh`` empties it.
        Raises ``FencedOff``."""
        args = (attempt, self._ttl_ms, int(afresh))
        last = cast(int, self._scripts.run("open_stream", keys=(stream, head), args=args))
        if last == -2:
            raise FencedOff
        return last

    def append(self, stream: str, head: str, attempt: int, seq: int, entry: bytes) -> None:
        """Raises ``FencedOff``; a gap in the sequence is a bug and a ``ValueError``."""
        args = (attempt, seq, entry, self._ttl_ms, self._keep_bytes)
        outcome = self._scripts.run("append", keys=(stream, head), args=args)
        if outcome == 0:
            raise FencedOff
        if outcome == -1:
            raise ValueError(f"entry {seq} does not follow the stream's last one")

    def read(self, stream: str, after: bytes = START) -> Iterator[tuple[bytes, bytes]]:
        """What is there now after ``after``: entry ids and entries."""
        while True:
            with broker_errors():
                rows = cast(
                    list[tuple[bytes, dict[bytes, bytes]]],
                    self._client.xrange(stream, b"(" + after, "+", count=_BATCH),
                )
            for entry_id, fields in rows:
                yield entry_id, fields[b"m"]
            if len(rows) < _BATCH:
                return
            after = rows[-1][0]

    def last(self, stream: str) -> bytes | None:
        """The newest entry."""
        with broker_errors():
            rows = cast(list[tuple[bytes, dict[bytes, bytes]]], self._client.xrevrange(stream, count=1))
        return rows[0][1][b"m"] if rows else None

    def follow(self, stream: str, beat_s: float) -> Iterator[bytes | None]:
        """Every entry from the first on, as it comes, without end; None when nothing came for ``beat_s``
        (``MAX_BLOCK_S`` at most)."""
        after = START
        block_ms = max(1, int(min(beat_s, MAX_BLOCK_S) * 1000))
        while True:
            with broker_errors():
                answer = self._blocking.xread({stream: after}, count=_BATCH, block=block_ms)
            streams = cast(list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]], answer or [])
            if not streams:
                yield None
            for _, rows in streams:
                for entry_id, fields in rows:
                    after = entry_id
                    yield fields[b"m"]
