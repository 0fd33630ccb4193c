"""A list of ids: a sorted set of equal scores, so that it is read by id, which is by age."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import redis

from workers.broker import broker_errors, text

_SWEPT_AT_ONCE = 500


class IdIndex:
    """``key`` is the sorted set's, ``record(id)`` that of an id's record, which may run out before its name
    goes. Raises ``StagewaveError(broker_unavailable)``."""

    def __init__(self, client: redis.Redis, key: str, record: Callable[[str], str]) -> None:
        self._client = client
        self._key = key
        self._record = record

    def ids(
        self, count: int, after: str | None = None, *, oldest_first: bool = False, before: str | None = None
    ) -> list[str]:
        """So many at most, newest first, that come after ``after`` and before ``before`` in that order."""
        first, last = ("-", "+") if oldest_first else ("+", "-")
        with broker_errors():
            found = self._client.zrange(
                self._key,
                f"({after}" if after else first,
                f"({before}" if before else last,
                desc=not oldest_first,
                bylex=True,
                offset=0,
                num=count,
            )
        return [text(name) for name in cast(list[bytes], found)]

    def forget_expired(self, before: str | None = None) -> int:
        """Take out the ids, or those older than ``before``, whose records have run out; how many."""
        removed = 0
        cursor: str | None = None
        while ids := self.ids(_SWEPT_AT_ONCE, cursor, oldest_first=True, before=before):
            with broker_errors():
                pipe = self._client.pipeline(transaction=False)
                for name in ids:
                    pipe.exists(self._record(name))
                gone = [name for name, there in zip(ids, pipe.execute(), strict=True) if not there]
                if gone:
                    removed += self._client.zrem(self._key, *gone)
            cursor = ids[-1]
        return removed
