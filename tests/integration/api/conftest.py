"""The real server as a process, on a real broker and object store; tests do the workers' part by hand."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
import pytest

from stage_pipeline.audio.transcript import to_json
from stage_pipeline.audio.wav_header import wav_header
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Segment
from stagewave.will import Will
from workers import keys
from workers.backend import Backend, connect_backend
from workers.claim_store import Claim
from workers.pool_registry import PoolWorker
from workers.results import audio_key, transcript_key
from workers.settings import Settings, load_settings, to_environ
from workers.states import Stage

ROOT = Path(__file__).parents[3]
RATE_HZ = 24_000
TTS = {"type": "tts", "text": "Good morning."}
NOOP_CONFIG = """\
model: noop
engine: noop
stages:
  - {stage_id: 0, max_num_seqs: 8}
  - {stage_id: 1, max_num_seqs: 8}
"""


def pcm_tone(seconds: float) -> bytes:
    """int16 samples of a low tone at ``RATE_HZ``."""
    moments = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return (np.sin(2 * np.pi * 220 * moments) * 8000).astype("<i2").tobytes()


def tone_wav(seconds: float) -> bytes:
    pcm = pcm_tone(seconds)
    return wav_header(RATE_HZ, len(pcm)) + pcm


def multipart_body(**fields: bytes) -> dict:
    """A form without a file, as arguments for a request."""
    parts = [
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value + b"\r\n"
        for name, value in fields.items()
    ]
    return {
        "content": b"".join(parts) + b"--B--\r\n",
        "headers": {"Content-Type": "multipart/form-data; boundary=B"},
    }


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an answer that must be a whole problem."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text[:300]
    problem = answer.json()
    assert {"type", "title", "status", "detail", "code", "retryable", "request_id"} <= set(problem)
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"/docs#error-{problem['code']}"
    assert (
        "Traceback" not in answer.text and "/work" not in answer.text and "site-packages" not in answer.text
    )
    return answer.status_code, problem["code"]


class Speaking:
    """One Token2Wav attempt, at the speed the test likes."""

    def __init__(self, backend: Backend, claim: Claim) -> None:
        self._backend = backend
        self._writer = backend.audio.open(claim.job.id, claim.attempt, RATE_HZ)
        self._pcm = b""
        self.claim = claim

    def write(self, pcm: bytes) -> None:
        self._writer.write(pcm)
        self._backend.claims.first_audio(self.claim)
        self._pcm += pcm

    def finish(self) -> None:
        self._writer.close()
        store_and_succeed(self._backend, self.claim, self._pcm)


def store_and_succeed(backend: Backend, claim: Claim, pcm: bytes) -> None:
    job_id = claim.job.id
    data = wav_header(RATE_HZ, len(pcm)) + pcm
    key = audio_key(job_id, claim.attempt, "wav")
    backend.objects.put_bytes(key, data, "audio/wav")
    duration_s = len(pcm) / 2 / RATE_HZ
    audio = {
        "format": "wav",
        "content_type": "audio/wav",
        "sample_rate_hz": RATE_HZ,
        "duration_s": duration_s,
        "size_bytes": len(data),
    }
    result = {
        "text": claim.job.spec.text,
        "source_text": None,
        "language": "en",
        "finish_reason": "stop",
        "audio": audio,
        "audio_key": key,
    }
    assert backend.claims.succeed(claim, result, {"audio_tokens": 25, "audio_out_s": duration_s})


class Hand:
    """Does what workers do, through the same store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def claim(self, job_id: str, stage: str) -> Claim:
        """This job, whatever else is queued."""
        pool = self._backend.jobs.get(job_id).spec.pool(Stage(stage))
        self._backend.client.zadd(keys.ready(pool), {job_id: -1e18}, xx=True)
        claim = self._backend.claims.claim(pool, Stage(stage), "by-hand")
        assert claim is not None and claim.job.id == job_id
        return claim

    def begin_speaking(self, job_id: str) -> Speaking:
        thinking = self.claim(job_id, "thinker")
        self._backend.claims.start_next(thinking, done=True, streamed=True)
        return Speaking(self._backend, self.claim(job_id, "token2wav"))

    def speak(self, job_id: str) -> None:
        """One second of tone, live and stored."""
        speaking = self.begin_speaking(job_id)
        speaking.write(pcm_tone(1.0))
        speaking.finish()

    def finish(self, claim: Claim, samples: int) -> None:
        """From a Thinker's claim to the end, with nothing live."""
        self._backend.claims.start_next(claim, done=True, streamed=False)
        speaking = self.claim(claim.job.id, "token2wav")
        store_and_succeed(self._backend, speaking, pcm_tone(samples / RATE_HZ))

    def store(self, claim: Claim, pcm: bytes) -> None:
        store_and_succeed(self._backend, claim, pcm)

    def transcribe(self, job_id: str, text: str) -> None:
        claim = self.claim(job_id, "thinker")
        key = transcript_key(job_id, claim.attempt)
        segments = [Segment(text, 0.5, 1.5)] if text else []
        body = to_json(segments, text=text, source_text="", language="en", duration_s=2.0)
        self._backend.objects.put_bytes(key, json.dumps(body).encode(), "application/json")
        result = {"text": text, "language": "en", "finish_reason": "stop", "transcript_key": key}
        assert self._backend.claims.succeed(claim, result, {"audio_in_s": 2.0})

    def fail(self, claim: Claim, code: ErrorCode, message: str) -> None:
        assert not code.retryable
        self._backend.claims.fail(claim, StagewaveError(code, message))


class Wire:
    """A way to the broker that can be cut and mended."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._start()

    def cut(self) -> None:
        # Shut down first: closing alone would not wake the thread in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._pairs:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its other end was shut before
        self._pairs.clear()

    def mend(self) -> None:
        self._listener = socket.create_server(self.address)
        self._start()

    def _start(self) -> None:
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=[one, other], daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Api(httpx.Client):
    """A server process, a client of it, and what lies behind it."""

    def __init__(self, settings: Settings, folder: Path, wire: Wire | None = None) -> None:
        self.settings = settings
        self.url = f"http://{settings.host}:{settings.port}"
        super().__init__(base_url=self.url, timeout=30)
        self.backend = connect_backend(settings if wire is None else _straight(settings, wire))
        self.hand = Hand(self.backend)
        self._wire = wire
        self._log = folder / f"api-{settings.port}.log"
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **to_environ(settings)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "api.server"], cwd=ROOT, env=environ, stdout=log, stderr=log
            )
        self._wait_until_it_answers()

    def make(self, **fields: object) -> dict:
        answer = self.post("/v1/jobs", json={**TTS, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def make_asr(self, wav: bytes) -> dict:
        answer = self.post("/v1/jobs", data={"type": "asr"}, files={"file": ("a.wav", wav)})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def empty(self) -> Api:
        """Nothing left of earlier tests."""
        self.backend.client.flushdb()
        for prefix in ("inputs/", "results/", "uploads/", "voices/", "files/", "batches/"):
            self.backend.objects.delete_prefix(prefix)
        return self

    def log(self) -> str:
        return self._log.read_text()

    @contextmanager
    def broker_away(self) -> Iterator[None]:
        assert self._wire is not None
        self._wire.cut()
        try:
            yield
        finally:
            self._wire.mend()

    @contextmanager
    def all_pools(self) -> Iterator[None]:
        """As if a worker of every pool had just said that it is there."""
        pools = {"thinker": "thinker.noop", "token2wav": "token2wav.noop", "io": "io"}
        for stage, pool in pools.items():
            self.backend.pools.beat(
                PoolWorker(
                    worker_id=f"w-{stage}",
                    pid=1,
                    pool=pool,
                    stage=stage,
                    model="noop",
                    concurrency=2,
                    state="ready",
                )
            )
        try:
            yield
        finally:
            for stage in pools:
                self.backend.pools.leave(f"w-{stage}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(10)

    def discard(self) -> None:
        """Whatever state it is in."""
        self.close()
        self._process.kill()
        self._process.wait()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            assert self._process.poll() is None and time.monotonic() < deadline, self.log()
            try:
                if self.get("/healthz", timeout=1).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)


def _straight(settings: Settings, wire: Wire) -> Settings:
    """The same settings past the wire: the test's own way to the broker is never cut."""
    host, port = wire._target
    return replace(settings, redis_url=_at(settings.redis_url or "", host, port))


def _at(url: str, host: str, port: int) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@{host}:{port}" if login else f"{host}:{port}"))


def _with_database(url: str, number: int) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{number}"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def api_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="session")
def api_settings(api_folder: Path, broker_url: str, object_store_env: dict[str, str]) -> Settings:
    config = api_folder / "noop.yaml"
    config.write_text(NOOP_CONFIG)
    places = {"HOME": str(api_folder / "home"), "CONFIG": str(config), "REDIS_URL": broker_url}
    environ = {f"STAGEWAVE_{name}": value for name, value in places.items()} | object_store_env
    return replace(load_settings(environ), webhook_secret="whsec_" + "QUJD" * 10)


class Servers:
    """Starts servers, each on a broker database and a bucket of its own."""

    def __init__(self, settings: Settings, folder: Path, will: Will) -> None:
        self._settings = settings
        self._folder = folder
        self._will = will
        self._made: list[Api] = []

    def start(self, *, wired: bool = False, **changes: object) -> Api:
        number = len(self._made)
        url = _with_database(self._settings.redis_url or "", 1 + number % 15)
        wire = None
        if wired:
            parts = urlsplit(url)
            wire = Wire((parts.hostname or "", parts.port or 0))
            url = _at(url, *wire.address)
        own = {"redis_url": url, "s3_bucket": f"api-{number}", "port": _free_port()}
        made = Api(replace(self._settings, **own, **changes), self._folder, wire)
        self._made.append(made)
        self._will.add(made.pid)
        made.backend.objects.ensure_bucket()
        return made

    def close(self) -> None:
        for made in self._made:
            made.discard()
            self._will.remove(made.pid)


@pytest.fixture(scope="session")
def servers(api_settings: Settings, api_folder: Path, will: Will) -> Iterator[Servers]:
    made = Servers(api_settings, api_folder, will)
    yield made
    made.close()


@pytest.fixture(scope="session")
def _api(servers: Servers) -> Api:
    return servers.start(wired=True)


@pytest.fixture(scope="session")
def _guarded(servers: Servers) -> Api:
    return servers.start(api_keys=("secret-1", "secret-2"))


@pytest.fixture(scope="session")
def _small_queue(servers: Servers) -> Api:
    return servers.start(queue_limit=3)


@pytest.fixture(scope="session")
def _few_seats(servers: Servers) -> Api:
    return servers.start(waiters_limit=3)


@pytest.fixture
def api(_api: Api) -> Api:
    """The server, with nothing in its queue."""
    return _api.empty()


@pytest.fixture
def guarded(_guarded: Api) -> Api:
    """One that wants a key."""
    return _guarded.empty()


@pytest.fixture
def small_queue(_small_queue: Api) -> Api:
    """One whose queue holds three jobs."""
    return _small_queue.empty()


@pytest.fixture
def few_seats(_few_seats: Api) -> Api:
    """One where three clients may wait."""
    return _few_seats.empty()


@pytest.fixture
def later() -> Iterator[Callable[..., None]]:
    """Runs a call after so many seconds; all have ended when the test does."""
    timers: list[threading.Timer] = []

    def start(seconds: float, call: Callable[..., object], *args: object, **kwargs: object) -> None:
        timers.append(threading.Timer(seconds, call, args, kwargs))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join(20)


@pytest.fixture
def fresh_api(servers: Servers) -> Iterator[Api]:
    """One of the test's own, which it may stop."""
    made = servers.start()
    yield made.empty()
    made.discard()
