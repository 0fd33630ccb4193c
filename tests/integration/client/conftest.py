"""A whole system without a model, for the client and the commands that use it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from stagewave import Client
from tests.integration.api.conftest import _with_database
from tests.integration.conftest import NOOP_CONFIG, ROOT, System, free_port
from workers.settings import load_settings

SAMPLES_A_TOKEN = 960
RATE_HZ = 24_000
COMMAND = [sys.executable, "-c", "from stagewave.cli import main; main()"]


def clip(number: int = 0) -> bytes:
    """Half a second and a bit of a recording, another one for each number."""
    file = io.BytesIO()
    soundfile.write(file, np.full(8_000 + number, 100, dtype=np.int16), 16_000, format="WAV")
    return file.getvalue()


def batch(system: System, folder: Path, *arguments: str | Path, url: str | None = None) -> list[str]:
    """The command line of ``stagewave batch``, for a process in ``folder``."""
    return [*COMMAND, "batch", *map(str, arguments), "--url", url or system.url]


def run_batch(
    system: System, folder: Path, *arguments: str | Path, url: str | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        batch(system, folder, *arguments, url=url),
        cwd=folder,
        env=environ_of(system),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def environ_of(system: System) -> dict[str, str]:
    """Of a person who can reach the object store too."""
    settings = system.settings
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "STAGEWAVE_S3_ENDPOINT": settings.s3_endpoint or "",
        "STAGEWAVE_S3_ACCESS_KEY": settings.s3_access_key or "",
        "STAGEWAVE_S3_SECRET_KEY": settings.s3_secret_key or "",
    }


@pytest.fixture(scope="package")
def served(
    broker_url: str, object_store_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """All its processes run."""
    folder = tmp_path_factory.mktemp("client")
    config = folder / "noop.yaml"
    config.write_text(NOOP_CONFIG)
    places = {
        "STAGEWAVE_HOME": str(folder / "home"),
        "STAGEWAVE_REDIS_URL": _with_database(broker_url, 13),
        "STAGEWAVE_CONFIG": str(config),
    }
    settings = replace(
        load_settings(places | object_store_env),
        s3_bucket="client",
        port=free_port(),
        lease_s=2.0,
        heartbeat_s=0.2,
        drain_s=1.0,
    )
    made = System(settings, folder)
    made.backend.client.flushdb()
    made.backend.objects.ensure_bucket()
    made.start("thinker", "token2wav", "io", "scheduler", "api")
    yield made
    made.close()


@pytest.fixture
def client(served: System) -> Iterator[Client]:
    with Client(served.url, patience_s=5) as made:
        yield made
