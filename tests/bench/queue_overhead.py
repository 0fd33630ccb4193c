"""What the queue costs: everything but the engine, which here does nothing.

    python -m tests.bench.queue_overhead [--jobs 1000]

Starts the whole system (broker, object store, API, pools, scheduler) on the no-op engine, and a bare
Celery worker of the same kind on the same broker as the rival. Prints, for one run:

- POST to Thinker start, and POST to the first audio byte at a live listener, p50 and p99;
- a token chunk's way from the Thinker's hand to Token2Wav's, and audio's way to a listener;
- no-op jobs per second from POST to the terminal state, beside bare Celery tasks per second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from celery import Celery

from tests.bench.whole_system import EVERYTHING, report, whole_system
from tests.integration.conftest import ROOT, System
from workers.audio_channel import AudioChannel
from workers.broker import connect, connect_blocking
from workers.job import new_job_id
from workers.token_channel import TokenChannel

CLIENTS = 8
BARE_TASK = "bare.nothing"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with whole_system() as system:
        system.backend.objects.ensure_bucket()
        url = system.settings.redis_url or ""
        hops(url, options.rounds)
        system.start(*EVERYTHING)
        latency(system, options.rounds)
        ours = throughput(system, options.jobs)
        bare = bare_celery(url, system.settings.home, options.jobs)
        print(f"jobs/s over bare Celery tasks/s: {ours / bare:.2f}")


# -- latency -------------------------------------------------------------------------------------


def latency(system: System, rounds: int) -> None:
    to_start, to_audio = [], []
    with httpx.Client(base_url=system.url, timeout=30) as client:
        for turn in range(rounds + 5):
            posted = time.time()
            body = {"type": "tts", "text": "tokens=28", "live": True}
            job = client.post("/v1/jobs", json=body).raise_for_status().json()
            with client.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
                for _ in answer.iter_bytes():
                    heard = time.time()
                    break
            started = system.backend.events.read(job["id"])[1].id.split("-")[0]
            if turn >= 5:  # the first ones warm connections up
                to_start.append(max(0.0, int(started) / 1000 - posted))
                to_audio.append(heard - posted)
    report("POST to Thinker start (broker's clock, 1 ms)", to_start)
    report("POST to first live audio byte at the client", to_audio)


# -- hops ----------------------------------------------------------------------------------------


def hops(url: str, rounds: int) -> None:
    for name, reader in (
        ("a token chunk, hand to hand", _read_tokens),
        ("live audio, hand to hand", _read_audio),
    ):
        mine, theirs = multiprocessing.Pipe()
        job_id = new_job_id()
        process = multiprocessing.get_context("spawn").Process(
            target=reader, args=(url, job_id, rounds, theirs)
        )
        process.start()
        mine.recv()
        sent = _write(url, job_id, rounds, tokens=reader is _read_tokens)
        received = mine.recv()
        process.join()
        report(name, [got - at for at, got in zip(sent, received, strict=True)])


def _write(url: str, job_id: str, rounds: int, *, tokens: bool) -> list[float]:
    client, blocking = connect(url), connect_blocking(url)
    sent = []
    token_writer = TokenChannel(client, blocking, 60).open(job_id, 1) if tokens else None
    audio_writer = None if tokens else AudioChannel(client, blocking, 60, 0).open(job_id, 1, 24_000)
    for _ in range(rounds):
        time.sleep(0.005)
        sent.append(time.time())
        if token_writer is not None:
            token_writer.send(range(25))
        if audio_writer is not None:
            audio_writer.write(bytes(4800))
    return sent


def _read_tokens(url: str, job_id: str, rounds: int, pipe: object) -> None:
    channel = TokenChannel(connect(url), connect_blocking(url), 60)
    _time_arrivals(channel.follow(job_id), rounds, pipe)


def _read_audio(url: str, job_id: str, rounds: int, pipe: object) -> None:
    channel = AudioChannel(connect(url), connect_blocking(url), 60, 0)
    _time_arrivals(channel.follow(job_id), rounds, pipe)


def _time_arrivals(chunks: object, rounds: int, pipe: object) -> None:
    pipe.send("ready")
    received: list[float] = []
    for chunk in chunks:
        if chunk is not None:
            received.append(time.time())
        if len(received) == rounds:
            break
    pipe.send(received)


# -- throughput ----------------------------------------------------------------------------------


def throughput(system: System, jobs: int) -> float:
    """Jobs a second through both stages: once with audio in the object store at the end, and once ending
    just before that (the voice is unknown), which is the queue alone."""
    _rate(system, jobs, "no-op TTS jobs, POST to audio in the store", {"type": "tts", "text": "tokens=1"})
    return _rate(
        system, jobs, "the same without storage (no audio made)", {"type": "tts", "text": "tokens=0"}
    )


def _rate(system: System, jobs: int, what: str, body: dict[str, object]) -> float:
    local = threading.local()

    def post(_: int) -> None:
        if not hasattr(local, "client"):
            local.client = httpx.Client(base_url=system.url, timeout=60)
        local.client.post("/v1/jobs", json=body).raise_for_status()

    before = _ended(system)
    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(post, range(jobs)))
    while _ended(system) < before + jobs:
        time.sleep(0.02)
    rate = jobs / (time.monotonic() - began)
    print(f"{what:46} {rate:8.1f} jobs/s")
    return rate


def _ended(system: System) -> int:
    counts = system.backend.counts.by_status()
    return counts["succeeded"] + counts["failed"]


def bare_celery(url: str, folder: Path, tasks: int) -> float:
    """The rival: the same broker, the same kind of pool, a task that counts in Redis that it ran."""
    app = _bare_app(url)
    environ = {"BARE_URL": url, "PATH": "/usr/bin:/bin"}
    log = (folder / "bare.log").open("wb")
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.queue_overhead_rival"],
        cwd=ROOT,
        env=environ,
        stdout=log,
        stderr=log,
    )
    client = connect(url)
    try:
        app.send_task(BARE_TASK, queue="bare")
        while int(client.get("bare:ran") or 0) < 1:
            time.sleep(0.05)
        began = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda _: app.send_task(BARE_TASK, queue="bare"), range(tasks)))
        while int(client.get("bare:ran") or 0) < tasks + 1:
            time.sleep(0.02)
        rate = tasks / (time.monotonic() - began)
    finally:
        worker.terminate()
        worker.wait(10)
    print(f"{'bare Celery no-op tasks, send to ran':46} {rate:8.1f} tasks/s")
    return rate


def _bare_app(url: str) -> Celery:
    app = Celery("bare", broker=url, set_as_current=False)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1)
    return app


if __name__ == "__main__":
    main()
