"""The real server before real pools, asked by OpenAI's own client and by plain HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.integration.api.conftest import (  # noqa: F401  # fixtures: servers without pools, for the walk
    Api,
    Servers,
    _api,
    _guarded,
    _small_queue,
    _with_database,
    api,
    api_folder,
    api_settings,
    guarded,
    later,
    servers,
    small_queue,
)
from tests.integration.conftest import NOOP_CONFIG, ROOT, System, free_port
from workers.job import Job
from workers.settings import load_settings

SAMPLES_A_TOKEN = 960
RATE_HZ = 24_000


def client_of(system: System) -> OpenAI:
    """OpenAI's client as it comes, but for retries, which would hide what went wrong."""
    return OpenAI(base_url=f"{system.url}/v1", api_key="EMPTY", max_retries=0, timeout=60)


def newest(system: System) -> Job:
    return system.backend.jobs.page(limit=1)[0][0]


def wait_for_job(system: System | Api, after: Job | None = None) -> Job:
    """The first job there is, or that comes after ``after``."""
    deadline = time.monotonic() + 10
    while True:
        found = system.backend.jobs.page(limit=1)[0]
        if found and (after is None or found[0].id != after.id):
            return found[0]
        assert time.monotonic() < deadline, "no job was made"
        time.sleep(0.01)


def error_of(answer: httpx.Response) -> tuple[int, str, str | None]:
    """Status, code and param of an answer that must be an error in OpenAI's form."""
    assert answer.headers["Content-Type"] == "application/json", answer.text[:300]
    body = answer.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text and "/work" not in answer.text
    return answer.status_code, body["error"]["code"], body["error"]["param"]


def _started(
    name: str, config: Path, database: int, folder: Path, broker_url: str, store: dict[str, str]
) -> System:
    places = {
        "STAGEWAVE_HOME": str(folder / "home"),
        "STAGEWAVE_REDIS_URL": _with_database(broker_url, database),
    }
    settings = replace(
        load_settings(places | store),
        s3_bucket=name,
        port=free_port(),
        config=(config,),
        lease_s=2.0,
        heartbeat_s=0.2,
        drain_s=1.0,
    )
    made = System(settings, folder)
    made.backend.client.flushdb()
    made.backend.objects.ensure_bucket()
    made.start("thinker", "token2wav", "scheduler", "api")  # nothing here is fetched: no io pool
    return made


@pytest.fixture(scope="package")
def noop(
    broker_url: str, object_store_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """The processes of a deploy without a model."""
    folder = tmp_path_factory.mktemp("openai-noop")
    config = folder / "noop.yaml"
    config.write_text(NOOP_CONFIG)
    made = _started("openai-noop", config, 14, folder, broker_url, object_store_env)
    yield made
    made.close()


@pytest.fixture(scope="package")
def embedded(
    broker_url: str, object_store_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """The processes of the deploy that is shipped as the default."""
    folder = tmp_path_factory.mktemp("openai-embedded")
    config = ROOT / "configs" / "embedded.yaml"
    made = _started("openai-embedded", config, 15, folder, broker_url, object_store_env)
    yield made
    made.close()


@pytest.fixture(scope="package")
def crowded(servers: Servers) -> Iterator[Api]:  # noqa: F811  # the fixture, as fixtures are asked for
    """A server whose only seat is taken; it reads small bodies only."""
    made = servers.start(waiters_limit=1, max_json_bytes=100_000).empty()
    with made.stream("GET", f"/v1/jobs/{made.make()['id']}/events") as events:
        lines = events.iter_lines()
        next(lines)
        yield made
        del lines  # kept so long: without it the connection is closed


@pytest.fixture
def openai(noop: System) -> Iterator[OpenAI]:
    with client_of(noop) as client:
        yield client


@pytest.fixture
def http(noop: System) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=noop.url, timeout=60) as client:
        yield client
