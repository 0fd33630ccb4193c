"""The scheduler: takes back what dead workers held, rings where no bell waits, and sweeps.

It may run many times: one leads, the others stand by. It moves no job but through the job store.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

from stage_pipeline.deploy import DeployConfig, DeployError, load_deploys
from stage_pipeline.errors import StagewaveError
from workers import keys
from workers.backend import Backend, connect_backend
from workers.batch_feeder import BatchFeeder
from workers.bell import waiting_bells
from workers.broker import broker_errors, broker_time
from workers.cannot_start import cannot_start
from workers.janitor import Janitor
from workers.leader import Leadership
from workers.log import start_logging
from workers.object_store import ObjectStore
from workers.settings import Settings, SettingsError, load_settings
from workers.states import IO_POOL, pools_of

_log = logging.getLogger(__name__)

TICK_S = 0.5
_SWEEP_EVERY_S = 600.0
_BUCKET_EVERY_S = 5.0
_MOST_BELLS = 256
"""Bells rung for one pool in one tick; more are rung in the next ones."""


class Scheduler:
    """``tick`` is one step; the loop around it is the process's. Its clock is the broker's."""

    def __init__(
        self, backend: Backend, pools: tuple[str, ...], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend = backend
        self._monotonic = monotonic
        self._pools = pools
        self._leadership = Leadership(backend.client, keys.LEADER)
        self._janitor = Janitor(backend)
        self._swept_at: float | None = None
        self._answered_at: float | None = None
        self._reaps_from = 0.0

    def tick(self) -> bool:
        """One step; False when another scheduler leads."""
        leads = self._leadership.hold()
        self._note_answer(self._monotonic())
        if not leads:
            return False
        now = broker_time(self._backend.client)
        if self._monotonic() >= self._reaps_from:
            self._reap()
        self._ring(now)
        if self._swept_at is None or now - self._swept_at >= _SWEEP_EVERY_S:
            self._swept_at = now
            self._janitor.sweep(now)
        return True

    def resign(self) -> None:
        self._leadership.resign()

    def _note_answer(self, now: float) -> None:
        """While the broker was away leases ran out, and not because a worker was lost: who lives gets the
        time to renew."""
        lease_s = self._backend.settings.lease_s
        if self._answered_at is not None and now - self._answered_at > lease_s / 2:
            self._reaps_from = now + lease_s
        self._answered_at = now

    def _reap(self) -> None:
        taken_back, _ = self._backend.upkeep.reap()
        if taken_back:
            _log.warning("attempts of lost workers taken back", extra={"attempts": taken_back})

    def _ring(self, now: float) -> None:
        """Where work is ready and no bell waits, bells were lost (or a worker with them): ring again."""
        # The feeder rings for jobs of batches: it knows which threads may take one.
        depths = self._backend.counts.live_depths(self._pools)
        for pool, depth in depths.items():
            owed = depth
            if pool == IO_POOL:
                owed += self._backend.deliveries.count_due(now)
            else:
                owed += self._backend.voices.count_due(pool, now)
            if not owed:
                continue
            with broker_errors():
                missing = min(owed, _MOST_BELLS) if waiting_bells(self._backend.client, pool) == 0 else 0
            for _ in range(missing):
                self._backend.bell.ring(pool)


def main() -> None:
    try:
        settings = load_settings(os.environ)
        start_logging(settings.log_level)
        deploys = load_deploys(settings.config, settings.model_dir)
    except (DeployError, SettingsError) as error:
        cannot_start(error)
    run(settings, deploys)


def run(settings: Settings, deploys: Sequence[DeployConfig]) -> None:
    """Schedule for these deploys until told to stop (SIGTERM, SIGINT)."""
    pools = pools_of(deploys)
    backend = connect_backend(settings)
    scheduler, feeder = Scheduler(backend, tuple(pools)), BatchFeeder(backend, deploys)
    stop = threading.Event()

    def stopping(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, stopping)
    signal.signal(signal.SIGINT, stopping)
    feeding = threading.Thread(target=feeder.run, args=(stop,), name="batch-feeder")
    feeding.start()
    threading.Thread(target=_keep_bucket, args=(backend.objects, stop), name="bucket", daemon=True).start()
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
    feeding.join()


def _keep_bucket(objects: ObjectStore, stop: threading.Event) -> None:
    """An object store may begin empty, after us, or come back empty."""
    away = False
    while True:
        try:
            objects.ensure_bucket()
            away = False
        except Exception:
            # The edge of a step, as of a tick: whatever it was, the next one looks again.
            if not away:
                _log.warning("bucket away", exc_info=True)
            away = True
        if stop.wait(_BUCKET_EVERY_S):
            return


if __name__ == "__main__":
    main()
