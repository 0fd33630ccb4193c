"""The scheduler: takes back what dead workers held, rings where no bell waits, and sweeps.

It may run many times: one leads, the others stand by. It moves no job but through the job store.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType

from stage_pipeline.deploy import load_deploy
from stage_pipeline.errors import StagewaveError
from workers.backend import Backend, connect_backend
from workers.bell import waiting_bells
from workers.broker import broker_errors, broker_time
from workers.janitor import Janitor
from workers.leader import Leadership
from workers.log import start_logging
from workers.settings import load_settings
from workers.states import IO_POOL, Stage, pool_of

_log = logging.getLogger(__name__)

TICK_S = 0.5
_SWEEP_EVERY_S = 600.0
_MOST_BELLS = 256
"""Bells rung for one pool in one tick; more are rung in the next ones."""


class Scheduler:
    """``tick`` is one step; the loop around it is the process's. Its clock is the broker's."""

    def __init__(self, backend: Backend, pools: tuple[str, ...]) -> None:
        self._backend = backend
        self._pools = pools
        self._leadership = Leadership(backend.client)
        self._janitor = Janitor(backend)
        self._swept_at: float | None = None

    def tick(self) -> bool:
        """One step; False when another scheduler leads."""
        if not self._leadership.hold():
            return False
        now = broker_time(self._backend.client)
        self._reap()
        self._ring(now)
        if self._swept_at is None or now - self._swept_at >= _SWEEP_EVERY_S:
            self._swept_at = now
            self._janitor.sweep(now)
        return True

    def resign(self) -> None:
        self._leadership.resign()

    def _reap(self) -> None:
        taken_back, _ = self._backend.jobs.reap()
        if taken_back:
            _log.warning("attempts of lost workers taken back", extra={"attempts": taken_back})

    def _ring(self, now: float) -> None:
        """Where work is ready and no bell waits, bells were lost (or a worker with them): ring again."""
        depths = self._backend.jobs.queue_depths(self._pools)
        for pool, depth in depths.items():
            owed = depth
            if pool == IO_POOL:
                owed += self._backend.deliveries.count_due(now)
            if not owed:
                continue
            with broker_errors():
                missing = min(owed, _MOST_BELLS) if waiting_bells(self._backend.client, pool) == 0 else 0
            for _ in range(missing):
                self._backend.bell.ring(pool)


def main() -> None:
    settings = load_settings(os.environ)
    start_logging(settings.log_level)
    deploy = load_deploy(settings.config)
    pools = [IO_POOL, pool_of(Stage.THINKER, deploy.model)]
    if deploy.speaks:
        pools.append(pool_of(Stage.TOKEN2WAV, deploy.model))
    scheduler = Scheduler(connect_backend(settings), tuple(pools))
    stop = threading.Event()

    def stopping(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, stopping)
    signal.signal(signal.SIGINT, stopping)
    _log.info("scheduler ready", extra={"pools": pools})
    while not stop.wait(TICK_S):
        try:
            scheduler.tick()
        except StagewaveError as error:
            _log.warning("tick skipped", extra={"code": error.code.code})
        except Exception:
            # The edge of a step: the next one starts from what is in the store.
            _log.exception("tick broke")
    try:
        scheduler.resign()
    except StagewaveError:
        _log.warning("leadership not handed over")


if __name__ == "__main__":
    main()
