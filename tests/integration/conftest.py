"""The real system as processes: pools and scheduler on a real broker and object store."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from stage_pipeline.stages import Task
from workers.backend import Backend, connect_backend
from workers.job import AudioSource, Job, JobSpec, new_job_id
from workers.results import input_key
from workers.settings import Settings, load_settings, to_environ
from workers.states import Status
from workers.submit import submit

ROOT = Path(__file__).parents[2]
NOOP_CONFIG = """\
model: noop
engine: noop
voices: {default: "0", slow: "4"}
stages:
  - {stage_id: 0, max_num_seqs: 8}
  - {stage_id: 1, max_num_seqs: 8}
"""


_MODULES = {"scheduler": ["workers.scheduler"], "api": ["api.server"]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wav(samples: int = 16_000) -> bytes:
    """Silence at 16 kHz."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(samples, dtype=np.int16), 16_000, format="WAV")
    return file.getvalue()


class System:
    """Starts, kills and stops the processes of one deploy; ``backend`` looks at what they do."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.backend: Backend = connect_backend(settings, patient_s=10)
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.ready_s = 60.0
        """How long a pool may take to start."""

    def start(self, *names: str, program: str | None = None) -> None:
        """``api``, ``scheduler``, ``thinker``, ``token2wav``, ``io``; waits until they answer. ``program``:
        Python to run instead of a process's own."""
        for name in names:
            module = _MODULES.get(name) or ["workers.pool", "--stage", name]
            command = ["-m", *module] if program is None else ["-c", program]
            log = (self._folder / f"{name}.log").open("ab")
            environ = {"PATH": os.environ["PATH"], "HOME": str(self._folder), **to_environ(self.settings)}
            self._children[name] = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=environ, stderr=log, stdout=log
            )
        for name in names:
            if name == "api":
                self.wait_until(self._api_answers, "the API answers", 30)
            elif name != "scheduler":
                self.wait_until(lambda name=name: self._is_ready(name), f"{name} is ready", self.ready_s)

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye."""
        child = self._children.pop(name)
        child.kill()
        child.wait()

    def runs(self, name: str) -> bool:
        return name in self._children and self._children[name].poll() is None

    def exit_code(self, name: str) -> int | None:
        return self._children[name].poll()

    def signal(self, name: str, number: signal.Signals) -> None:
        self._children[name].send_signal(number)

    def stop(self, name: str, timeout_s: float = 15) -> int:
        """SIGTERM, and the exit code."""
        child = self._children.pop(name)
        child.terminate()
        return child.wait(timeout_s)

    def close(self) -> None:
        for child in self._children.values():
            child.send_signal(signal.SIGCONT)
            child.kill()
        for child in self._children.values():
            child.wait()

    def submit(self, task: Task = Task.TTS, **options: object) -> Job:
        spec = {"type": task, "model": "noop", "text": "tokens=10"} | options
        return submit(self.backend, new_job_id(), JobSpec(**spec))[0]

    def submit_audio(self, task: Task, data: bytes, **options: object) -> Job:
        """A job whose audio was uploaded."""
        job_id = new_job_id()
        self.backend.objects.put_bytes(input_key(job_id), data, "application/octet-stream")
        source = AudioSource("upload", size_bytes=len(data))
        spec = JobSpec(**{"type": task, "model": "noop", "audio": source} | options)
        return submit(self.backend, job_id, spec)[0]

    def job(self, job_id: str) -> Job:
        return self.backend.jobs.get(job_id)

    def wait_end(self, job_id: str, timeout_s: float = 30) -> Job:
        deadline = time.monotonic() + timeout_s
        for _ in self.backend.events.follow(job_id, heartbeat_s=0.5):
            if time.monotonic() > deadline:
                break
        job = self.job(job_id)
        assert job.status.terminal, (
            f"job still {job.status} in {job.stage} after {timeout_s} s:\n{self.logs()}"
        )
        return job

    def wait_success(self, job_id: str, timeout_s: float = 30) -> Job:
        job = self.wait_end(job_id, timeout_s)
        assert job.status is Status.SUCCEEDED, f"{job.error}\n{self.logs()}"
        return job

    def wait_until(self, true: Callable[[], bool], what: str, timeout_s: float = 15) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            for name, child in self._children.items():
                assert child.poll() is None, f"{name} died:\n{self.logs()}"
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{self.logs()}"
            time.sleep(0.01)

    def log(self, name: str) -> str:
        """All that a process has said."""
        return (self._folder / f"{name}.log").read_text()

    def logs(self) -> str:
        tails = []
        for path in sorted(self._folder.glob("*.log")):
            tails.append(f"--- {path.stem}\n" + "\n".join(path.read_text().splitlines()[-15:]))
        return "\n".join(tails)

    def audio(self, job: Job) -> bytes:
        """The finished audio object."""
        assert job.result is not None
        with self.backend.objects.open(str(job.result["audio_key"])) as stored:
            return b"".join(stored.iter_chunks())

    @property
    def url(self) -> str:
        return f"http://{self.settings.host}:{self.settings.port}"

    def pid(self, name: str) -> int:
        return self._children[name].pid

    def _api_answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=1).status_code == 200
        except httpx.TransportError:
            return False

    def _is_ready(self, name: str) -> bool:
        mine = self._children[name].pid
        return any(
            worker.stage == name and worker.state == "ready" and worker.pid == mine
            for worker in self.backend.pools.workers()
        )


ALL_POOLS = ("thinker", "token2wav", "io", "scheduler")


@pytest.fixture(scope="module")
def noop_settings(
    broker_url: str, object_store_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings of a deploy without a model, with short leases. A module may override this."""
    folder = tmp_path_factory.mktemp("system")
    config = folder / "noop.yaml"
    config.write_text(NOOP_CONFIG)
    places = {"STAGEWAVE_HOME": str(folder / "home"), "STAGEWAVE_REDIS_URL": broker_url}
    return replace(
        load_settings(places | object_store_env),
        port=free_port(),
        config=(config,),
        lease_s=2.0,
        heartbeat_s=0.2,
        drain_s=1.0,
    )


@pytest.fixture
def system(noop_settings: Settings, tmp_path: Path) -> Iterator[System]:
    """A fresh one, of which nothing runs yet, on an empty broker and store: in a module that also uses
    ``running``, only before its first use."""
    made = _fresh(noop_settings, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_system(noop_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    made = _fresh(noop_settings, tmp_path_factory.mktemp("logs"))
    yield made
    made.close()


@pytest.fixture
def running(shared_system: System) -> System:
    """Both pools, the io pool and the scheduler, which run through all tests of a module; what one test
    has killed is started again for the next."""
    shared_system.start(*(name for name in ALL_POOLS if not shared_system.runs(name)))
    return shared_system


def _fresh(settings: Settings, folder: Path) -> System:
    made = System(settings, folder)
    made.backend.client.flushall()
    made.backend.objects.ensure_bucket()
    for prefix in ("inputs/", "results/", "voices/", "files/", "batches/"):
        made.backend.objects.delete_prefix(prefix)
    return made
