"""What keeps a worker upright: it leaves when it is deaf, and takes no job when the disk is full."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

from tests.integration.conftest import ROOT, System
from workers import keys
from workers.hearing import DEAF_EXIT
from workers.settings import to_environ
from workers.states import Status

# A worker that never started to listen: bells wait for it, and it has all its threads free.
DEAF_WORKER = """
import os, threading
from workers.attempt import LeaseKeeper
from workers.backend import connect_backend
from workers.hearing import Hearing
from workers.io_runner import FetchRunner
from workers.breaker import Breaker
from workers.pool_registry import PoolWorker
from workers.settings import load_settings
from workers.spool import Spool
from workers.worker import Worker

settings = load_settings(os.environ)
backend = connect_backend(settings)
keeper = LeaseKeeper(backend.jobs, 0.2)
spool = Spool(settings.home, settings.disk_floor_bytes)
record = PoolWorker("w", "thinker.noop", "thinker", "noop", concurrency=2, pid=os.getpid())
runner = FetchRunner(backend, spool, Breaker(backend.objects))
worker = Worker(backend, keeper, record.pool, "w", runner, spool)
Hearing(backend, keeper, worker, record, deaf_s=3.0).start()
threading.Event().wait(60)
"""


def test_a_worker_that_no_longer_hears_its_bells_leaves(system: System) -> None:
    system.submit(text="tokens=1")
    assert system.backend.client.llen(keys.bells("thinker.noop")) == 1
    environ = {"PATH": "/usr/bin:/bin", **to_environ(system.settings)}
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", DEAF_WORKER], cwd=ROOT, env=environ, timeout=40)
    assert done.returncode == DEAF_EXIT
    assert time.monotonic() - began > 3


def test_a_worker_whose_broker_is_away_is_not_deaf(system: System) -> None:
    away = replace(system.settings, redis_url="redis://127.0.0.1:1/0")
    environ = {"PATH": "/usr/bin:/bin", **to_environ(away)}
    child = subprocess.Popen([sys.executable, "-c", DEAF_WORKER], cwd=ROOT, env=environ)
    try:
        time.sleep(9)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_worker_takes_no_job_while_the_disk_is_full(system: System) -> None:
    job = system.submit(text="tokens=1")
    roomy = system.settings
    system.settings = replace(roomy, disk_floor_bytes=2**62)
    system.start("thinker", "token2wav", "scheduler")
    time.sleep(2)
    assert system.job(job.id).status is Status.QUEUED
    system.kill("thinker")
    system.kill("token2wav")
    system.settings = roomy
    system.start("thinker", "token2wav")
    system.wait_success(job.id)
