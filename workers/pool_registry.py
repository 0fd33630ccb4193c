"""Which workers live: each pool process tells here that it is there, and what it serves."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import Literal, cast

import redis

from workers import keys
from workers.broker import broker_errors

BEAT_S = 2.0
SILENT_S = 10.0
"""A worker not heard of for so long does not count as alive."""


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """One process of a pool."""

    worker_id: str
    pool: str
    stage: str
    model: str
    concurrency: int
    pid: int
    devices: str | None = None
    voices: tuple[str, ...] = ()
    sample_rate_hz: int | None = None
    started_at: float = 0.0
    seen_at: float = 0.0
    state: Literal["starting", "ready", "stopping"] = "starting"
    running: int = 0


class PoolRegistry:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def beat(self, worker: PoolWorker) -> None:
        """Say that ``worker`` is alive now."""
        now = time.time()
        record = json.dumps(asdict(replace(worker, seen_at=now)))
        with broker_errors():
            pipe = self._client.pipeline()
            pipe.set(keys.pool(worker.worker_id), record, px=int(SILENT_S * 1000))
            pipe.zadd(keys.CONTROL_PREFIXES["pools"], {worker.worker_id: now})
            pipe.execute()

    def leave(self, worker_id: str) -> None:
        with broker_errors():
            self._client.delete(keys.pool(worker_id))
            self._client.zrem(keys.CONTROL_PREFIXES["pools"], worker_id)

    def workers(self) -> list[PoolWorker]:
        """The live ones."""
        names = keys.CONTROL_PREFIXES["pools"]
        with broker_errors():
            ids = cast(list[bytes], self._client.zrange(names, 0, -1))
            records = (
                cast(list[bytes | None], self._client.mget([keys.pool(i.decode()) for i in ids]))
                if ids
                else []
            )
            silent = [i for i, record in zip(ids, records, strict=True) if record is None]
            if silent:
                self._client.zrem(names, *silent)
        found = [json.loads(record) for record in records if record is not None]
        return [PoolWorker(**{**record, "voices": tuple(record["voices"])}) for record in found]
