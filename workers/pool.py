"""One process of a pool: an engine, a Celery worker with threads, and the leases of what runs in it."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import threading
import time
from dataclasses import replace
from typing import Literal, Protocol

from celery.signals import worker_shutting_down
from ulid import ULID

from stage_pipeline.deploy import DeployConfig, DeployError, load_deploy
from stage_pipeline.engines.load import load_thinker, load_token2wav
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.attempt import Attempt, AttemptLost, AttemptReleased, LeaseKeeper
from workers.backend import Backend, connect_backend
from workers.celery_app import WORK, make_celery
from workers.fenced_stream import FencedOff
from workers.io_runner import FetchRunner, WebhookRunner
from workers.job_store import Claim
from workers.log import start_logging
from workers.pool_registry import BEAT_S, PoolWorker
from workers.settings import Settings, load_settings
from workers.spool import Spool
from workers.states import IO_POOL, Stage, Status, pool_of
from workers.thinker_runner import ThinkerRunner
from workers.token2wav_runner import Token2WavRunner

_log = logging.getLogger(__name__)

_PATIENCE_S = 90.0
"""How long a worker's commands wait for a broker that is away."""

POOL_NAMES = ("thinker", "token2wav", "io")


class Runner(Protocol):
    """What does the work of one stage."""

    stage: Stage

    def run(self, attempt: Attempt) -> None: ...


class Pool:
    """Answers bells: claims a job, runs the attempt, and records how it ended."""

    def __init__(
        self,
        backend: Backend,
        keeper: LeaseKeeper,
        pool: str,
        worker_id: str,
        runner: Runner,
        webhooks: WebhookRunner | None = None,
    ) -> None:
        self._backend = backend
        self._keeper = keeper
        self._pool = pool
        self._worker_id = worker_id
        self._runner = runner
        self._webhooks = webhooks
        self._stopping = threading.Event()

    def answer(self) -> None:
        """One bell: jobs, and webhooks that are due, until there is nothing left to do."""
        busy = True
        while busy and not self._stopping.is_set():
            claim = self._backend.jobs.claim(self._pool, self._runner.stage, self._worker_id)
            if claim is not None:
                self._run(claim)
            busy = claim is not None
            if self._webhooks is not None:
                busy = self._webhooks.run_one() or busy

    def stop_after(self, drain_s: float) -> None:
        """Take no more jobs; hand back what still runs after ``drain_s``."""
        self._stopping.set()
        timer = threading.Timer(drain_s, self._keeper.release_all)
        timer.daemon = True
        timer.start()

    def _run(self, claim: Claim) -> None:
        where = {"job_id": claim.job.id, "stage": claim.stage.value, "attempt": claim.attempt}
        began = time.monotonic()
        with self._keeper.keep(claim) as attempt:
            try:
                self._work(attempt)
                outcome = "done"
            except (AttemptLost, FencedOff):
                outcome = "lost"
                self._drop_leftovers(claim)
            except AttemptReleased:
                outcome = "released"
                if (pool := self._backend.jobs.release(claim)) is not None:
                    self._backend.bell.ring(pool)
            except StagewaveError as error:
                outcome = self._failed(attempt, error)
            except Exception:
                # The edge of a task: log the cause once, and let the job know only that it failed.
                _log.exception("attempt broke", extra=where)
                outcome = self._failed(
                    attempt, StagewaveError(ErrorCode.INTERNAL, "an internal error ended this attempt")
                )
        self._ring_for_webhooks(claim)
        elapsed_ms = round((time.monotonic() - began) * 1000, 1)
        _log.info("attempt ended", extra={**where, "outcome": outcome, "ms": elapsed_ms})

    def _work(self, attempt: Attempt) -> None:
        try:
            self._runner.run(attempt)
        except Exception:
            attempt.check()  # what was told to stop may say so in its own way
            raise

    def _failed(self, attempt: Attempt, error: StagewaveError) -> str:
        self._backend.jobs.fail(attempt.claim, error)
        return error.code.code

    def _drop_leftovers(self, claim: Claim) -> None:
        """A canceled or deleted job's streams, should this attempt have opened one a moment too late."""
        status = self._backend.jobs.status(claim.job.id)
        if status is None or (status.terminal and status is not Status.SUCCEEDED):
            self._backend.jobs.drop_streams(claim.job.id)

    def _ring_for_webhooks(self, claim: Claim) -> None:
        if claim.job.spec.webhook is not None:
            self._backend.bell.ring(IO_POOL)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.pool", description="Run one pool process.")
    parser.add_argument("--stage", required=True, choices=POOL_NAMES)
    stage_name = parser.parse_args(argv).stage
    settings = load_settings(os.environ)
    start_logging(settings.log_level)
    run_pool(settings, stage_name)


def run_pool(settings: Settings, stage_name: str) -> None:
    """Serve until told to stop (SIGTERM, SIGINT). The engine is built here, in the main thread, before
    Celery starts a thread."""
    deploy = load_deploy(settings.config)
    backend = connect_backend(settings, patient_s=_PATIENCE_S)
    spool = Spool(settings.home)
    worker_id = f"{stage_name}-{socket.gethostname()}-{ULID()}"
    worker = PoolWorker(
        worker_id=worker_id,
        pool=IO_POOL if stage_name == IO_POOL else pool_of(Stage(stage_name), deploy.model),
        stage=stage_name,
        model=deploy.model,
        concurrency=settings.io_concurrency,
        pid=os.getpid(),
        started_at=time.time(),
    )
    runner: Runner
    webhooks = None
    if stage_name == IO_POOL:
        runner, webhooks = FetchRunner(backend, spool), WebhookRunner(backend)
    else:
        runner, worker = _load_stage(settings, deploy, backend, spool, worker)
    keeper = LeaseKeeper(backend.jobs, settings.heartbeat_s)
    keeper.start()
    registration = _Registration(backend, keeper, worker)
    registration.start()
    pool = Pool(backend, keeper, worker.pool, worker_id, runner, webhooks)
    _log.info("pool ready", extra={"pool": worker.pool, "concurrency": worker.concurrency})
    try:
        _serve(settings, pool, registration, worker)
    finally:
        registration.stop()
        keeper.stop()
        spool.close()


def _load_stage(
    settings: Settings, deploy: DeployConfig, backend: Backend, spool: Spool, worker: PoolWorker
) -> tuple[Runner, PoolWorker]:
    stage_id = 0 if worker.stage == Stage.THINKER else 1
    config = deploy.stage(stage_id)
    if config is None:
        raise DeployError(f"the deploy config has no stage {stage_id}: it serves no {worker.stage} pool")
    worker = replace(worker, concurrency=config.max_num_seqs, devices=config.devices)
    cache = settings.home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    if stage_id == 0:
        thinker = load_thinker(deploy, cache)
        thinker.warm_up()
        return ThinkerRunner(backend, thinker, deploy, spool), worker
    token2wav = load_token2wav(deploy, cache)
    token2wav.warm_up()
    worker = replace(worker, voices=token2wav.voices(), sample_rate_hz=token2wav.sample_rate)
    return Token2WavRunner(backend, token2wav, deploy, spool), worker


def _serve(settings: Settings, pool: Pool, registration: _Registration, worker: PoolWorker) -> None:
    app = make_celery(settings)
    app.task(name=WORK)(pool.answer)

    def stopping(**_: object) -> None:
        registration.state = "stopping"
        pool.stop_after(settings.drain_s)

    worker_shutting_down.connect(stopping, weak=False)
    celery_worker = app.Worker(
        hostname=worker.worker_id,
        pool="threads",
        concurrency=worker.concurrency,
        queues=[worker.pool],
        loglevel="WARNING",
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
        self._worker = worker
        self.state: Literal["starting", "ready", "stopping"] = "starting"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        try:
            self._backend.pools.leave(self._worker.worker_id)
        except StagewaveError:
            _log.warning("not signed off", extra={"worker": self._worker.worker_id})

    def _run(self) -> None:
        while True:
            try:
                now = replace(self._worker, state=self.state, running=self._keeper.running)
                self._backend.pools.beat(now)
            except StagewaveError:
                _log.warning("not registered", extra={"worker": self._worker.worker_id})
            if self._stop.wait(BEAT_S):
                return


if __name__ == "__main__":
    main()
