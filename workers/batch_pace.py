"""How fast batches go: how many of their jobs may be outstanding, and who is woken for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from stage_pipeline.deploy import DeployConfig
from workers.backend import Backend
from workers.batch import Batch
from workers.bell import waiting_bells
from workers.broker import broker_errors
from workers.states import Stage, pools_of

_WINDOW = (100, 2000)
"""The least is what short jobs need while nobody knows yet how short they are."""
_WINDOW_ROUNDS = 4
"""Of the pools' slots: enough that no worker runs dry between two looks."""
_WINDOW_S = 2.0
"""Or what ends in so long, where jobs are short."""
_RATE_OVER_S = 20.0


class BatchPace:
    """Of all batches together. ``now`` is seconds of one clock, whose zero is of no matter."""

    def __init__(self, backend: Backend, deploys: Sequence[DeployConfig]) -> None:
        self._backend = backend
        self._pools = pools_of(deploys)
        self._rates: dict[str, _Rate] = {}

    def see(self, batch: Batch, now: float) -> None:
        """Note how far a batch is, and now and then write down how fast it goes."""
        rate = self._rates.setdefault(batch.id, _Rate())
        if rate.is_news(now):
            self._backend.batches.set_rate(batch.id, rate.per_s)
        rate.see(batch.ended, now)

    def window(self) -> int:
        """Jobs that may be outstanding, of all batches together."""
        live = self._backend.pools.workers()
        slots = sum(worker.concurrency for worker in live if worker.stage == Stage.THINKER)
        per_s = sum(rate.per_s for rate in self._rates.values())
        least, most = _WINDOW
        most = min(most, max(1, self._backend.settings.queue_limit // 2))
        return min(max(least, _WINDOW_ROUNDS * slots, int(_WINDOW_S * per_s)), most)

    def ring(self) -> None:
        """Wake threads that are free where jobs of batches wait; a busy one looks for more by itself."""
        waiting = {pool: n for pool, n in self._backend.counts.batch_depths(self._pools).items() if n}
        if not waiting:
            return
        live = self._backend.pools.workers()
        for pool, depth in waiting.items():
            free = sum(max(0, w.room_for_batches - w.running) for w in live if w.pool == pool)
            with broker_errors():
                if not free or waiting_bells(self._backend.client, pool):
                    continue
            for _ in range(min(free, depth)):
                self._backend.bell.ring(pool)

    def forget(self, batch_id: str) -> None:
        self._rates.pop(batch_id, None)

    def forget_all(self) -> None:
        self._rates.clear()


class _Rate:
    """Lines that end in a second, of late."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._told_at = 0.0

    def see(self, ended: int, now: float) -> None:
        if not self._seen or now - self._seen[-1][0] >= 0.5:
            self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float:
        if len(self._seen) < 2:
            return 0.0
        (then, before), (now, ended) = self._seen[0], self._seen[-1]
        return (ended - before) / (now - then)

    def is_news(self, now: float) -> bool:
        if now - self._told_at < 1.0:
            return False
        self._told_at = now
        return True
