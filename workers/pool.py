"""One process of a pool: an engine, a Celery worker with threads, and the leases of what runs in it."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from celery.signals import worker_shutting_down
from ulid import ULID

from stage_pipeline.deploy import DeployError, check_files
from stage_pipeline.engines.load import load_thinker, load_token2wav
from stage_pipeline.engines.start_fault import start_fault
from stage_pipeline.errors import StagewaveError
from workers.attempt import LeaseKeeper
from workers.backend import Backend, connect_backend
from workers.breaker import Breaker
from workers.cannot_start import cannot_start
from workers.celery_app import WORK, make_celery
from workers.hearing import Hearing
from workers.io_runner import FetchRunner, WebhookRunner
from workers.log import start_logging
from workers.pinning import VISIBLE, pin, turn_on
from workers.pool_part import PoolPart, part_of
from workers.pool_registry import BEAT_S, PoolWorker
from workers.settings import Settings, SettingsError, load_settings
from workers.spool import Spool
from workers.states import IO_POOL, Stage, pool_of
from workers.thinker_runner import ThinkerRunner
from workers.token2wav_runner import Token2WavRunner
from workers.worker import Aside, Runner, Worker

_log = logging.getLogger(__name__)

_PATIENCE_S = 90.0
"""How long a worker's commands wait for a broker that is away."""

POOL_NAMES = ("thinker", "token2wav", "io")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.pool", description="Run one pool process.")
    parser.add_argument("--stage", required=True, choices=POOL_NAMES)
    parser.add_argument("--config", type=Path, help="which deploy config, where the settings name several")
    parser.add_argument("--devices", help="the GPUs of this process, instead of the config's")
    arguments = parser.parse_args(argv)
    try:
        settings = load_settings(os.environ)
        start_logging(settings.log_level)
        if arguments.config is not None:
            settings = replace(settings, config=(arguments.config,))
        run_pool(settings, arguments.stage, arguments.devices)
    except (DeployError, SettingsError) as error:
        cannot_start(error)


def run_pool(settings: Settings, stage_name: str, devices: str | None = None) -> None:
    """Serve until told to stop (SIGTERM, SIGINT). The engine is built here, in the main thread, before
    Celery starts a thread. Raises ``DeployError`` or ``SettingsError`` when it cannot run as configured."""
    part = None if stage_name == IO_POOL else part_of(settings, stage_name, devices)
    if part is not None and part.stage.devices is not None:
        pin(part.stage.devices, os.environ)
    backend = connect_backend(settings, patient_s=_PATIENCE_S)
    backend.objects.load()
    spool = Spool(settings.home, settings.disk_floor_bytes)
    worker_id = f"{stage_name}-{socket.gethostname()}-{ULID()}"
    record = PoolWorker(
        worker_id=worker_id,
        pool=IO_POOL if part is None else pool_of(Stage(stage_name), part.deploy.model),
        stage=stage_name,
        model="" if part is None else part.deploy.model,
        concurrency=settings.io_concurrency if part is None else part.stage.max_num_seqs,
        pid=os.getpid(),
        version=version("stagewave"),
        devices=os.environ.get(VISIBLE),
        started_at=time.time(),
    )
    keeper = LeaseKeeper(backend.claims, settings.heartbeat_s)
    keeper.start()
    registration = _Registration(backend, keeper, record)
    registration.start()  # before the engine, which may take minutes: it is seen to be starting
    try:
        runner: Runner
        aside: Aside | None = None
        if part is None:
            runner, aside = FetchRunner(backend, spool, Breaker(backend.objects)), WebhookRunner(backend)
        else:
            with turn_on(part.stage.devices, settings.home):
                runner, record = _load_stage(settings, part, backend, spool, record)
            registration.worker = record
            aside = runner.voices if isinstance(runner, Token2WavRunner) else None
        worker = Worker(
            backend, keeper, record.pool, worker_id, runner, spool, record.room_for_batches, aside
        )
        Hearing(backend, keeper, worker, record).start()
        _log.info("pool ready", extra={"pool": record.pool, "concurrency": record.concurrency})
        _serve(settings, worker, registration, record)
    finally:
        registration.stop()
        keeper.stop()
        spool.close()


def _load_stage(
    settings: Settings, part: PoolPart, backend: Backend, spool: Spool, record: PoolWorker
) -> tuple[Runner, PoolWorker]:
    deploy = part.deploy
    check_files(deploy)
    breaker = Breaker(backend.objects)
    cache = settings.home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    if part.stage.stage_id == 0:
        with _explained(part):
            thinker = load_thinker(deploy, cache)
            thinker.warm_up()
        return ThinkerRunner(backend, thinker, deploy, spool, breaker), record
    with _explained(part):
        token2wav = load_token2wav(deploy, cache)
        token2wav.warm_up()
    record = replace(record, voices=token2wav.voices(), sample_rate_hz=token2wav.sample_rate)
    return Token2WavRunner(backend, token2wav, deploy, spool, breaker), record


@contextmanager
def _explained(part: PoolPart) -> Iterator[None]:
    """An engine that does not start, whatever it raises, would not the next time: say what to change."""
    try:
        yield
    except DeployError:
        raise
    except Exception as error:
        _log.exception("the engine did not start")
        raise DeployError(start_fault(error, part.key)) from error


def _serve(settings: Settings, worker: Worker, registration: _Registration, record: PoolWorker) -> None:
    app = make_celery(settings)
    app.task(name=WORK)(worker.answer)

    def stopping(**_: object) -> None:
        registration.state = "stopping"
        worker.stop_after(settings.drain_s)

    worker_shutting_down.connect(stopping, weak=False)
    celery_worker = app.Worker(
        hostname=record.worker_id,
        pool="threads",
        concurrency=record.concurrency,
        queues=[record.pool],
        loglevel=settings.log_level,
        quiet=True,
        without_heartbeat=True,
        without_mingle=True,
        without_gossip=True,
    )
    registration.state = "ready"
    celery_worker.start()


class _Registration:
    """Tells the registry every ``BEAT_S`` that this worker lives."""

    def __init__(self, backend: Backend, keeper: LeaseKeeper, worker: PoolWorker) -> None:
        self._backend = backend
        self._keeper = keeper
        self.worker = worker
        self.state: Literal["starting", "ready", "stopping"] = "starting"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        try:
            self._backend.pools.leave(self.worker.worker_id)
        except StagewaveError:
            _log.warning("not signed off", extra={"worker": self.worker.worker_id})

    def _run(self) -> None:
        while True:
            try:
                now = replace(self.worker, state=self.state, running=self._keeper.running)
                self._backend.pools.beat(now)
            except StagewaveError:
                _log.warning("not registered", extra={"worker": self.worker.worker_id})
            except Exception:
                # Without this thread the worker would count as dead.
                _log.exception("not registered")
            if self._stop.wait(BEAT_S):
                return


if __name__ == "__main__":
    main()
