"""Which workers live: each pool process tells here that it is there, and what it serves."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass, field
from typing import Literal, cast

import redis

from workers import keys
from workers.broker import Scripts, broker_errors
from workers.processes import process_runs

BEAT_S = 1.0
SILENT_S = 4.0
"""A worker not heard of for so long does not count as alive: three beats missed, and the fourth late."""


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """One process of a pool."""

    worker_id: str
    pool: str
    stage: str
    model: str
    concurrency: int
    pid: int
    version: str = ""
    devices: str | None = None
    """The GPUs that the process sees, as ``CUDA_VISIBLE_DEVICES`` names them."""
    voices: tuple[str, ...] = ()
    sample_rate_hz: int | None = None
    started_at: float = 0.0
    seen_at: float = 0.0
    """By the broker's clock; known of those that the registry gives."""
    host: str = field(default_factory=socket.gethostname)
    state: Literal["starting", "ready", "stopping"] = "starting"
    running: int = 0

    @property
    def room_for_batches(self) -> int:
        """How many of its slots jobs of batches may fill: the last one is kept for somebody who waits."""
        return max(1, self.concurrency - 1)


class PoolRegistry:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._scripts = Scripts(client)

    def beat(self, worker: PoolWorker) -> None:
        """Say that ``worker`` is alive now."""
        ready = int(worker.state == "ready")
        args = (worker.worker_id, json.dumps(asdict(worker)), int(SILENT_S * 1000), worker.pool, ready)
        self._scripts.run("beat", keys=(keys.pool(worker.worker_id),), args=args)

    def last_ready(self, pool: str) -> float | None:
        """When a worker of this pool last said that it is ready, in Unix seconds; None: never."""
        with broker_errors():
            seen_ms = self._client.zscore(keys.CONTROL_PREFIXES["pools_ready"], pool)
        return None if seen_ms is None else seen_ms / 1000

    def forget_dead(self) -> None:
        """Sign off the workers of this machine whose process is gone, without waiting for their silence."""
        here = socket.gethostname()
        for worker in self.workers():
            if worker.host == here and not process_runs(worker.pid):
                self.leave(worker.worker_id)

    def leave(self, worker_id: str) -> None:
        with broker_errors():
            self._client.delete(keys.pool(worker_id))
            self._client.zrem(keys.CONTROL_PREFIXES["pools"], worker_id)

    def workers(self) -> list[PoolWorker]:
        """The live ones."""
        names = keys.CONTROL_PREFIXES["pools"]
        with broker_errors():
            seen = cast(list[tuple[bytes, float]], self._client.zrange(names, 0, -1, withscores=True))
            ids = [worker_id.decode() for worker_id, _ in seen]
            records = cast(list[bytes | None], self._client.mget(map(keys.pool, ids))) if ids else []
            silent = [i for i, record in zip(ids, records, strict=True) if record is None]
            if silent:
                self._client.zrem(names, *silent)
        told = zip(records, seen, strict=True)
        return [_worker(record, seen_ms / 1000) for record, (_, seen_ms) in told if record is not None]


def _worker(record: bytes, seen_at: float) -> PoolWorker:
    fields = json.loads(record)
    return PoolWorker(**{**fields, "voices": tuple(fields["voices"]), "seen_at": seen_at})
