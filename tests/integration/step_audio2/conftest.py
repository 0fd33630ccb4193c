"""One system that runs Step-Audio2 with the tiny checkpoint, for all tests here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.integration.conftest import ROOT, System, free_port
from workers.settings import load_settings

SLOW_START_S = 300.0
"""vLLM's three processes take half a minute on a machine with nothing else to do."""


@pytest.fixture(scope="session", autouse=True)
def needs_vllm() -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed: docs/step_audio2.md says how")


@pytest.fixture(scope="package")
def speaking(
    broker_url: str,
    object_store_env: dict[str, str],
    tiny_checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[System]:
    """API, scheduler and both pools, ready; gone before another system uses the same broker."""
    folder = tmp_path_factory.mktemp("step-audio-2")
    places = {"STAGEWAVE_HOME": str(folder / "home"), "STAGEWAVE_REDIS_URL": broker_url}
    made = System(
        replace(
            load_settings(places | object_store_env),
            port=free_port(),
            config=(ROOT / "configs" / "step_audio_2_ci.yaml",),
            model_dir=tiny_checkpoint,
            lease_s=2.0,
            heartbeat_s=0.2,
        ),
        folder,
    )
    made.ready_s = SLOW_START_S
    made.backend.client.flushall()
    made.backend.objects.ensure_bucket()
    try:
        made.start("scheduler", "thinker", "token2wav", "api")
        yield made
    finally:
        made.close()


@pytest.fixture
def client(speaking: System) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=speaking.url, timeout=90) as made:
        yield made
