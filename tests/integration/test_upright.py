"""What keeps workers upright: one leaves when it is deaf or its engine hangs, and its jobs go on."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from stage_pipeline.engines.noop.thinker import token_at
from stage_pipeline.engines.noop.token2wav import tone
from stage_pipeline.messages import wave_to_pcm16
from tests.integration.conftest import ROOT, System
from workers import keys
from workers.audio_channel import AudioRestarted
from workers.settings import to_environ
from workers.worker import LEFT_EXIT

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
keeper = LeaseKeeper(backend.claims, 0.2)
spool = Spool(settings.home, settings.disk_floor_bytes)
record = PoolWorker("w", "thinker.noop", "thinker", "noop", concurrency=2, pid=os.getpid())
runner = FetchRunner(backend, spool, Breaker(backend.objects))
worker = Worker(backend, keeper, record.pool, "w", runner, spool, record.room_for_batches)
Hearing(backend, keeper, worker, record, deaf_s=3.0).start()
threading.Event().wait(60)
"""


def test_a_worker_that_no_longer_hears_its_bells_leaves(system: System) -> None:
    system.submit(text="tokens=1")
    assert system.backend.client.llen(keys.bells("thinker.noop")) == 1
    environ = {"PATH": "/usr/bin:/bin", **to_environ(system.settings)}
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", DEAF_WORKER], cwd=ROOT, env=environ, timeout=40)
    assert done.returncode == LEFT_EXIT
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


# An engine that cannot go on after the tokens of an earlier attempt.
FORGETFUL_THINKER = """
from stage_pipeline.engines.noop.thinker import NoopThinker
from workers.pool import main
NoopThinker.resumes_from_tokens = False
main(["--stage", "thinker"])
"""


def test_who_listens_to_an_engine_that_cannot_go_on_is_told_and_the_audio_is_whole(system: System) -> None:
    system.start("token2wav", "scheduler")
    system.start("thinker", program=FORGETFUL_THINKER)
    job = system.submit(text="tokens=200 delay_ms=10", mode="async_chunk", live=True)
    listener = system.backend.audio.follow(job.id)
    assert next(chunk for chunk in listener if chunk)
    system.kill("thinker")
    before = system.backend.tokens.chunks(job.id)
    assert before
    system.start("thinker", program=FORGETFUL_THINKER)
    with pytest.raises(AudioRestarted):
        list(listener)
    done = system.wait_success(job.id)
    assert {chunk.attempt for chunk in before} == {1}
    assert done.attempts["thinker"] == 2
    told = [e.data for e in system.backend.events.read(job.id) if e.name == "restart"]
    assert told == [{"stage": "token2wav"}]
    anew = [chunk.pcm for chunk in system.backend.audio.follow(job.id) if chunk]
    wave = [tone(token_at(position), position) for position in range(200)]
    assert b"".join(anew) == wave_to_pcm16(np.concatenate(wave))


# A step that holds the interpreter: no thread of the process runs any more.
HELD_THINKER = """
import ctypes
from stage_pipeline.engines.noop.thinker import NoopThinker
from workers.pool import main
NoopThinker._hang = lambda self, seconds: ctypes.PyDLL(None).sleep(int(seconds))
main(["--stage", "thinker"])
"""


# A step that never ends, of a stage whose other threads go on.
STUCK_TOKEN2WAV = """
import time
from stage_pipeline.engines.noop.token2wav import NoopStream
from workers.pool import main
NoopStream.feed = lambda self, tokens, final: iter(lambda: time.sleep(60), None)
main(["--stage", "token2wav"])
"""


def test_a_worker_whose_engine_hangs_leaves(system: System) -> None:
    system.settings = replace(system.settings, engine_silent_s=2.0)
    system.start("scheduler")
    system.start("thinker", program=HELD_THINKER)
    system.start("token2wav", program=STUCK_TOKEN2WAV)
    system.submit(text="tokens=2")
    assert wait_exit(system, "token2wav") == LEFT_EXIT
    system.submit(text="tokens=2 hang_ms=60000")
    assert wait_exit(system, "thinker") == 1
    assert "most recent call first" in system.log("thinker")  # the stacks of its threads


def wait_exit(system: System, name: str) -> int | None:
    deadline = time.monotonic() + 30
    while system.runs(name):
        assert time.monotonic() < deadline, system.logs()
        time.sleep(0.05)
    return system.exit_code(name)


# An engine whose own process has died says so for each request that was in it.
DEAD_THINKER = """
from stage_pipeline.engines.noop import thinker
from stage_pipeline.errors import EngineDead
from workers.pool import main
def die(self, seconds):
    raise EngineDead("its process ended")
thinker.NoopThinker._hang = die
main(["--stage", "thinker"])
"""


def test_a_worker_whose_engine_has_died_leaves_and_its_jobs_go_on(system: System) -> None:
    system.start("token2wav", "scheduler")
    system.start("thinker", program=DEAD_THINKER)
    waits = system.submit(text="tokens=200 delay_ms=20", mode="sequential")
    poison = system.submit(text="tokens=40 delay_ms=10 hang_ms=1", mode="sequential")
    assert wait_exit(system, "thinker") == LEFT_EXIT
    system.start("thinker")
    assert system.wait_success(waits.id).attempts["thinker"] == 2
    assert system.wait_success(poison.id).attempts["thinker"] == 2
    failures = [system.backend.client.hget(keys.job(job.id), "failures:thinker") for job in (waits, poison)]
    assert failures == [b"0", b"1"]  # only what may have killed the engine is held against its job
