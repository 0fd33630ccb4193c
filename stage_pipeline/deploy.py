"""Deploy configs: which model, which engine, and how the pool of each stage is set up.

The keys are those of vLLM-Omni's Step-Audio2 deploy files, so that such a file loads as it is; the
others (``model``, ``engine``, ``model_dir``, ``voices``, ``limits``) are what a queue needs. A key nobody
knows is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stage_pipeline.deploy_config import (
    DeployConfig,
    DeployError,
    KeyFault,
    Limits,
    StageConfig,
    check_sharing,
    with_devices,
)

__all__ = [
    "DeployConfig",
    "DeployError",
    "DeployFile",
    "Limits",
    "StageConfig",
    "check_files",
    "check_sharing",
    "load_deploy",
    "load_deploys",
    "parse_deploy",
    "read_deploy_file",
    "with_devices",
]

YamlMap = dict[str, object]

IGNORED = frozenset(
    {
        "active_stream_window",
        "connectors",
        "custom_voice_dir",
        "distributed_executor_backend",
        "dtype",
        "duplex_session",
        "edges",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "model_runner",
        "session_mode",
    }
)
"""Keys of a vLLM-Omni deploy that mean nothing here: the queue joins the stages, and the engines choose
the rest themselves."""

IGNORED_IN_STAGES = frozenset(
    {
        "async_chunk",
        "async_scheduling",
        "compilation_config",
        "default_pooling_params",
        "disable_hybrid_kv_cache_manager",
        "distributed_executor_backend",
        "dtype",
        "enable_chunked_prefill",
        "enable_flashinfer_autotune",
        "enable_prefix_caching",
        "engine_extras",
        "env",
        "input_connectors",
        "mm_processor_cache_gb",
        "output_connectors",
        "profiler_config",
        "skip_mm_profiling",
        "trust_remote_code",
    }
)
_OLD_FORM = "stage_args"


@dataclass(frozen=True, slots=True)
class DeployFile:
    """A deploy config, and those keys of its file that are read over."""

    deploy: DeployConfig
    ignored: tuple[str, ...]


def load_deploys(paths: Sequence[Path], model_dir: Path | None = None) -> tuple[DeployConfig, ...]:
    """Those of all ``paths``, on one machine or on many; see ``load_deploy``."""
    deploys = tuple(load_deploy(path, model_dir) for path in paths)
    names = [deploy.model for deploy in deploys]
    for name in names:
        if names.count(name) > 1:
            raise DeployError(f"model: two deploy configs have the name {name}: each needs its own")
    return deploys


def load_deploy(path: Path, model_dir: Path | None = None) -> DeployConfig:
    """``model_dir`` is for a file that names none. Raises ``DeployError`` naming the key at fault."""
    return read_deploy_file(path, model_dir).deploy


def read_deploy_file(path: Path, model_dir: Path | None = None) -> DeployFile:
    """As ``load_deploy``, for those who want to know what was read over."""
    return parse_deploy(read_yaml(path), path, model_dir)


def parse_deploy(data: YamlMap, path: Path, model_dir: Path | None = None) -> DeployFile:
    """As ``read_deploy_file``, of what ``path`` holds, or will hold."""
    if _OLD_FORM in data:
        raise DeployError(
            f"deploy config {path.name}: {_OLD_FORM}: this is vLLM-Omni's older form: "
            f"`stagewave config convert {path.name}` makes a deploy config of it"
        )
    data, ignored = _without_ignored(data)
    # A deploy file of vLLM-Omni names none of the three: they are given where it is served.
    data = {"model": "step-audio-2", "engine": "step_audio2", **data}
    if data.get("model_dir") is None:
        data["model_dir"] = model_dir and model_dir.absolute()
    try:
        deploy = DeployConfig.model_validate(data)
        check_sharing([deploy])
    except ValidationError as error:
        faults = "; ".join(_told(fault) for fault in error.errors())
        raise DeployError(f"deploy config {path.name}: {faults}") from error
    except DeployError as error:
        raise DeployError(f"deploy config {path.name}: {error}") from None
    return DeployFile(_with_places(deploy, path.parent), ignored)


def read_yaml(path: Path) -> YamlMap:
    """The mapping in a file. Raises ``DeployError``."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DeployError(f"deploy config {path.name} does not exist") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DeployError(f"deploy config {path.name} cannot be read: {error}") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise DeployError(f"deploy config {path.name} is not a mapping of keys")
    return cast(YamlMap, data)


def check_files(deploy: DeployConfig) -> None:
    """Whether the files are there that the engine reads. Raises ``DeployError`` naming what to change."""
    if deploy.engine != "step_audio2":
        return
    folder = deploy.model_dir
    if folder is None:
        raise DeployError("model_dir: is not set: name the model's folder there, or in STAGEWAVE_MODEL_DIR")
    if not (folder / "config.json").is_file():
        raise DeployError(f"model_dir: {folder} has no config.json: is it the model's folder?")
    for name, place in deploy.voices.items():
        if not Path(place).is_file():
            raise DeployError(f"voices.{name}: {place} is no file: name a wav with the voice to speak in")


def _without_ignored(data: YamlMap) -> tuple[YamlMap, tuple[str, ...]]:
    ignored = [key for key in data if key in IGNORED]
    kept: YamlMap = {key: value for key, value in data.items() if key not in IGNORED}
    stages = data.get("stages")
    if isinstance(stages, list):
        kept["stages"] = []
        for index, stage in enumerate(stages):
            if isinstance(stage, dict):
                ignored += [f"stages.{index}.{key}" for key in stage if key in IGNORED_IN_STAGES]
                stage = {key: value for key, value in stage.items() if key not in IGNORED_IN_STAGES}
            cast(list[object], kept["stages"]).append(stage)
    return kept, tuple(ignored)


def _with_places(deploy: DeployConfig, folder: Path) -> DeployConfig:
    """With the files that the config names: they lie beside it unless their paths are absolute."""
    if deploy.engine != "step_audio2":
        return deploy
    places: dict[str, object] = {
        "voices": {name: str(folder / Path(place).expanduser()) for name, place in deploy.voices.items()}
    }
    if deploy.model_dir is not None:
        places["model_dir"] = folder / deploy.model_dir.expanduser()
    return deploy.model_copy(update=places)


def _told(fault: ErrorDetails) -> str:
    location = list(fault["loc"])
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, KeyFault):
        return f"{_dotted([*location, cause.key])}: {cause.why}"
    if fault["type"] == "extra_forbidden":
        return f"{_dotted(location)}: there is no such key{_meant(location)}"
    return f"{_dotted(location)}: {fault['msg'].removeprefix('Value error, ')}"


def _meant(location: list[int | str]) -> str:
    """A key of the same part that looks much like the unknown one."""
    part: type[BaseModel] = DeployConfig
    if location[0] == "stages":
        part = StageConfig
    elif location[0] == "limits":
        part = Limits
    close = get_close_matches(str(location[-1]), part.model_fields, n=1)
    return f"; is {close[0]} meant?" if close else ""


def _dotted(location: list[int | str]) -> str:
    return ".".join(str(part) for part in location) or "(file)"
