"""How many jobs there are: by pool, by status, and in all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import redis

from workers import keys
from workers.broker import broker_errors
from workers.states import Status

_BEHIND = 1e15
"""How far jobs of batches stand behind the others in a queue; ``lua/prelude.lua`` has it too."""


class JobCounts:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def queue_depths(self, pools: Iterable[str]) -> dict[str, int]:
        """Ready jobs of each pool."""
        names = list(pools)
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for pool in names:
                pipe.zcard(keys.ready(pool))
            return dict(zip(names, pipe.execute(), strict=True))

    def live_depths(self, pools: Iterable[str]) -> dict[str, int]:
        """Ready jobs of each pool, but for those of batches."""
        return self._depths(pools, "-inf", _BEHIND / 2)

    def batch_depths(self, pools: Iterable[str]) -> dict[str, int]:
        """Ready jobs of batches in each pool."""
        return self._depths(pools, _BEHIND / 2, "+inf")

    def by_status(self) -> dict[str, int]:
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for status in Status:
                pipe.zcard(keys.index(f"status:{status}"))
            return dict(zip((s.value for s in Status), pipe.execute(), strict=True))

    def totals(self) -> dict[str, int]:
        """Since the broker was new, for metrics: ``jobs|tts|succeeded``, ``ttfp|tts|250``, …"""
        with broker_errors():
            totals = cast(dict[bytes, bytes], self._client.hgetall(keys.CONTROL_PREFIXES["counts"]))
        return {name.decode(): int(value) for name, value in totals.items()}

    def _depths(self, pools: Iterable[str], least: float | str, most: float | str) -> dict[str, int]:
        names = list(pools)
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for pool in names:
                pipe.zcount(keys.ready(pool), least, most)
            return dict(zip(names, pipe.execute(), strict=True))
