"""Pools of several models side by side, each process a ``stagewave worker`` of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from stagewave import Client
from tests.integration.conftest import free_port, wav
from tests.integration.processes import Processes
from workers.pool_registry import PoolRegistry, PoolWorker

HEARS = "model: hears\nengine: noop\nstages: [{stage_id: 0, max_num_seqs: 3, devices: '0,1', replicas: 2}]"
SPEAKS = "model: speaks\nengine: noop\nstages: [{stage_id: 0, devices: 0}, {stage_id: 1, max_num_seqs: 5}]"


class Pools:
    """The API, the scheduler, and the pools of a model that hears and of one that also speaks."""

    def __init__(self, folder: Path, broker_url: str, store: dict[str, str]) -> None:
        self.hears, self.speaks = folder / "hears.yaml", folder / "speaks.yaml"
        self.hears.write_text(HEARS)
        self.speaks.write_text(SPEAKS)
        self.client = redis.Redis.from_url(broker_url)
        self.client.flushall()
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        environ = {
            "STAGEWAVE_HOME": str(folder / "home"),
            "STAGEWAVE_PORT": str(port),
            "STAGEWAVE_REDIS_URL": broker_url,
        }
        self.processes = Processes(folder, environ | store)

    def start(self) -> None:
        both = ("--config", str(self.hears), "--config", str(self.speaks))
        self.processes.start("api", "api", *both)
        self.processes.start("scheduler", "scheduler", *both)
        # As a cluster starts it that gives this process the last two GPUs of four.
        self.worker("thinker", self.hears, "--devices", "1", CUDA_VISIBLE_DEVICES="2,3")
        self.worker("thinker", self.speaks)
        self.worker("token2wav", self.speaks)
        self.processes.until(lambda: self.readiness()[0] >= 200, "the API answers")
        self.processes.until(lambda: len(self.ready()) == 3, "three workers are ready")

    def worker(self, stage: str, config: Path, *more: str, **environ: str) -> None:
        name = f"{stage}.{config.stem}"
        self.processes.start(name, "worker", "--config", str(config), "--stage", stage, *more, **environ)

    def ready(self) -> dict[str, PoolWorker]:
        workers = PoolRegistry(self.client).workers()
        return {worker.pool: worker for worker in workers if worker.state == "ready"}

    def readiness(self) -> tuple[int, dict[str, bool]]:
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=5)
        except httpx.TransportError:
            return 0, {}
        return answer.status_code, {name: check["ok"] for name, check in answer.json()["checks"].items()}

    def models(self) -> dict[str, tuple[list[str], bool]]:
        listed = httpx.get(f"{self.url}/v1/models", timeout=5).json()["data"]
        return {model["id"]: (model["tasks"], model["ready"]) for model in listed}


@pytest.fixture(scope="module")
def pools(
    broker_url: str, object_store_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pools]:
    made = Pools(tmp_path_factory.mktemp("pools"), broker_url, object_store_env)
    try:
        made.start()
        yield made
    finally:
        made.processes.close()
        made.client.close()


def test_each_process_registers_what_it_is(pools: Pools) -> None:
    ready = pools.ready()

    assert {name: (w.model, w.stage, w.concurrency) for name, w in ready.items()} == {
        "thinker.hears": ("hears", "thinker", 3),
        "thinker.speaks": ("speaks", "thinker", 1),
        "token2wav.speaks": ("speaks", "token2wav", 5),
    }
    assert all(worker.version for worker in ready.values())


def test_a_process_sees_its_gpus_alone(pools: Pools) -> None:
    ready = pools.ready()

    assert ready["thinker.hears"].devices == "3"  # the second of the two that it was given
    assert ready["thinker.speaks"].devices == "0"
    assert ready["token2wav.speaks"].devices is None


def test_a_job_goes_to_the_model_that_it_names(pools: Pools, tmp_path: Path) -> None:
    audio = tmp_path / "a.wav"
    audio.write_bytes(wav())
    with Client(pools.url) as client:
        ran = {
            model: client.wait(client.submit("asr", audio=audio, model=model).id, timeout_s=30)
            for model in ("hears", "speaks")
        }

    assert {model: (job.record["model"], job.succeeded) for model, job in ran.items()} == {
        "hears": ("hears", True),
        "speaks": ("speaks", True),
    }


def test_without_a_name_a_job_goes_to_a_model_that_can_do_it(pools: Pools) -> None:
    def model_of(path: str, **request: object) -> object:
        answer = httpx.post(f"{pools.url}{path}", timeout=30, **request)  # type: ignore[arg-type]  # httpx's own
        assert answer.is_success, answer.text
        job_id = answer.headers.get("x-job-id") or answer.json()["id"]
        return httpx.get(f"{pools.url}/v1/jobs/{job_id}", timeout=5).json()["model"]

    file = {"file": ("a.wav", wav())}
    assert model_of("/v1/jobs", json={"type": "tts", "text": "tokens=1"}) == "speaks"
    assert model_of("/v1/jobs", data={"type": "asr"}, files=file) == "hears"
    assert model_of("/v1/audio/speech", json={"model": "tts-1", "input": "tokens=1"}) == "speaks"
    assert model_of("/v1/audio/transcriptions", data={"model": "whisper-1"}, files=file) == "hears"
    assert model_of("/v1/audio/transcriptions", data={"model": "speaks"}, files=file) == "speaks"


def test_a_model_without_token2wav_refuses_to_speak(pools: Pools) -> None:
    asked = {"type": "tts", "text": "tokens=1", "model": "hears"}
    answer = httpx.post(f"{pools.url}/v1/jobs", json=asked, timeout=5)

    assert (answer.status_code, answer.json()["field"]) == (422, "type")
    asked["model"] = "nobody"
    assert httpx.post(f"{pools.url}/v1/jobs", json=asked, timeout=5).json()["code"] == "model_unknown"


def test_what_cannot_run_says_so_and_ends_with_78(pools: Pools) -> None:
    done = pools.processes.run("worker", "--stage", "thinker", "--config", str(pools.hears))

    assert done.returncode == 78
    assert re.fullmatch("cannot start: stages.0.replicas: is 2, .* --devices .*\n", done.stderr)


def test_a_model_whose_worker_is_gone_is_not_ready(pools: Pools) -> None:
    assert pools.models() == {"hears": (["asr"], True), "speaks": (["asr", "tts", "s2st"], True)}

    pools.processes.stop("token2wav.speaks")

    pools.processes.until(
        lambda: not pools.readiness()[1]["pool:token2wav.speaks"], "it is seen to be gone"
    )
    assert pools.readiness()[0] == 503
    assert pools.models() == {"hears": (["asr"], True), "speaks": (["asr", "tts", "s2st"], False)}
