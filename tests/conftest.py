"""A real broker and a real object store, started once for all tests that ask for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import redis

from stagewave.embedded_broker import EmbeddedBroker
from stagewave.embedded_store import EmbeddedStore
from stagewave.will import Will
from workers.settings import Settings, load_settings

BUCKET = "stagewave"

Handle = Callable[[BaseHTTPRequestHandler], None]
Serve = Callable[[Handle], str]


@pytest.fixture(scope="session")
def will(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Will]:
    """Ends what the tests have started, also when they are killed."""
    fd = os.open(tmp_path_factory.mktemp("will") / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    made = Will(fd)
    yield made
    made.close()
    os.close(fd)


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory: pytest.TempPathFactory, will: Will) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        will.add(broker.child.pid)
        yield broker.url
    will.remove(broker.child.pid)


@pytest.fixture(scope="session")
def object_store_env(tmp_path_factory: pytest.TempPathFactory, will: Will) -> Iterator[dict[str, str]]:
    """The ``STAGEWAVE_S3_*`` that lead to it; the bucket is there."""
    with EmbeddedStore(tmp_path_factory.mktemp("store"), BUCKET) as store:
        will.add(store.child.pid)
        yield {
            "STAGEWAVE_S3_ENDPOINT": store.endpoint,
            "STAGEWAVE_S3_BUCKET": BUCKET,
            "STAGEWAVE_S3_ACCESS_KEY": store.access_key,
            "STAGEWAVE_S3_SECRET_KEY": store.secret_key,
        }
    will.remove(store.child.pid)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory of Step-Audio2 with few and random weights."""
    from stage_pipeline.engines.step_audio2.make_checkpoint import PARTS

    folder = tmp_path_factory.mktemp("tiny")
    for write in PARTS:
        write(folder, "tiny")
    return folder


@pytest.fixture
def settings(broker_url: str, object_store_env: dict[str, str], tmp_path: Path) -> Settings:
    """Settings that lead to both, with a home of the test's own."""
    home = {"STAGEWAVE_HOME": str(tmp_path), "STAGEWAVE_REDIS_URL": broker_url}
    return load_settings(home | object_store_env)


@pytest.fixture
def redis_client(broker_url: str) -> Iterator[redis.Redis]:
    """The broker, emptied."""
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
        yield client


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts web servers on loopback: what is passed in answers each request; the URL comes back."""
    servers: list[ThreadingHTTPServer] = []

    def start(handle: Handle) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handle(self)

            do_HEAD = do_POST = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        server = _Server(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    # A handler that still sleeps must not hold up the end of its test.
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Clients that leave half way are what some tests are about."""
