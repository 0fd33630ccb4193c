"""The embedded engine, loaded once for all tests of this folder, and real speech to hear."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import soundfile
from faster_whisper.audio import decode_audio

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.engines.embedded.thinker import EmbeddedThinker
from stage_pipeline.engines.embedded.token2wav import EmbeddedToken2Wav
from stage_pipeline.engines.load import load_thinker, load_token2wav
from stage_pipeline.stages import Float32Wave, GenerateRequest, Task


def deploy_config(engine: str, **more: object) -> DeployConfig:
    stages = [{"stage_id": 0, "max_num_seqs": 4}, {"stage_id": 1, "max_num_seqs": 8}]
    return DeployConfig.model_validate({"model": "m", "engine": engine, "stages": stages, **more})


@pytest.fixture(scope="session")
def engine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine-cache")


@pytest.fixture(scope="session")
def thinker(engine_cache: Path) -> EmbeddedThinker:
    loaded = load_thinker(deploy_config("embedded"), engine_cache)
    assert isinstance(loaded, EmbeddedThinker)
    loaded.warm_up()
    return loaded


@pytest.fixture(scope="session")
def token2wav(engine_cache: Path) -> EmbeddedToken2Wav:
    loaded = load_token2wav(deploy_config("embedded", voices={"default": "joe"}), engine_cache)
    assert isinstance(loaded, EmbeddedToken2Wav)
    loaded.warm_up()
    return loaded


@pytest.fixture(scope="session")
def clauses_of(thinker: EmbeddedThinker) -> Callable[[str], list[tuple[int, ...]]]:
    """The audio tokens of a text, a tuple for each clause."""

    def clauses(text: str) -> list[tuple[int, ...]]:
        request = GenerateRequest("clauses", Task.TTS, text=text)
        return [delta.tokens for delta in thinker.generate(request) if delta.tokens]

    return clauses


@pytest.fixture(scope="session")
def two_cities() -> Float32Wave:
    """44 seconds: the beginning of A Tale of Two Cities, read by a person."""
    return _speech("two_cities.wav")


@pytest.fixture(scope="session")
def beckett() -> Float32Wave:
    """10 seconds of another person."""
    return _speech("beckett.wav")


def heard_at_16k(wave: Float32Wave, rate_hz: int) -> Float32Wave:
    """A wave at the rate at which every Thinker hears."""
    file = io.BytesIO()
    soundfile.write(file, wave, rate_hz, format="WAV", subtype="FLOAT")
    file.seek(0)
    return np.asarray(decode_audio(file), np.float32)


def _speech(name: str) -> Float32Wave:
    path = files("moonshine_voice").joinpath("assets", name)
    return np.asarray(decode_audio(io.BytesIO(path.read_bytes())), np.float32)
