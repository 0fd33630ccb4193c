"""Deploy configs: which model, which engine, and how the pool of each stage is set up.

The keys are those of vLLM-Omni's Step-Audio2 deploy files, so that such a file loads as it is; the
others (``model``, ``engine``, ``voices``, ``replicas``, ``limits``) are what a queue needs. A key nobody
knows is an error that names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator


class DeployError(ValueError):
    """A deploy config that cannot be used; the message names the key at fault."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Strict):
    """What one job may ask for."""

    audio_s: float = Field(default=4 * 3600, gt=0)
    """Longest audio input, in seconds."""
    text_chars: int = Field(default=20_000, gt=0)
    audio_out_s: float = Field(default=3600, gt=0)
    """Longest audio output, in seconds; a stage that makes more is stopped with ``length``."""


class StageConfig(_Strict):
    """One stage's pool. ``stage_id`` 0 is the Thinker, 1 is Token2Wav."""

    stage_id: Literal[0, 1]
    devices: str | None = None
    tensor_parallel_size: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=1)
    max_num_seqs: int = Field(default=1, ge=1)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    enforce_eager: bool | None = None
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    max_model_len: int | None = Field(default=None, ge=1)
    default_sampling_params: dict[str, JsonValue] = Field(default_factory=dict)
    hf_overrides: dict[str, JsonValue] = Field(default_factory=dict)


class DeployConfig(_Strict):
    """A whole deploy. Without a stage 1 there is no Token2Wav pool, and only ASR is served."""

    model: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    engine: Literal["embedded", "step_audio2", "noop"]
    model_dir: Path | None = None
    """The model's files in the official layout, for an engine that does not bring its own."""
    async_chunk: bool | None = None
    """Default mode of a job: True ``async_chunk``, False ``sequential``, unset ``auto``."""
    trust_remote_code: bool = False
    voices: dict[str, str] = Field(default_factory=dict)
    """Voice name to prompt wav (or to the embedded engine's built-in voice)."""
    limits: Limits = Field(default_factory=Limits)
    stages: tuple[StageConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _stages_make_sense(self) -> DeployConfig:
        ids = [stage.stage_id for stage in self.stages]
        if len(set(ids)) != len(ids):
            raise ValueError("stages: each stage_id may stand once")
        if 0 not in ids:
            raise ValueError("stages: stage_id 0 (the Thinker) is missing")
        if self.engine == "step_audio2" and self.model_dir is None:
            raise ValueError("model_dir: the engine step_audio2 needs the folder of the model")
        return self

    def stage(self, stage_id: int) -> StageConfig | None:
        return next((stage for stage in self.stages if stage.stage_id == stage_id), None)

    @property
    def speaks(self) -> bool:
        """Whether this deploy can make audio at all."""
        return self.stage(1) is not None


def load_deploy(path: Path) -> DeployConfig:
    """Raises ``DeployError`` naming the key for anything that cannot be used."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DeployError(f"deploy config {path.name} does not exist") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DeployError(f"deploy config {path.name} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise DeployError(f"deploy config {path.name} is not a mapping of keys")
    # A deploy file of vLLM-Omni names neither: they are given where it is served.
    data = {"model": "step-audio-2", "engine": "step_audio2", **data}
    try:
        return DeployConfig.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{_dotted(fault['loc'])}: {fault['msg']}" for fault in error.errors())
        raise DeployError(f"deploy config {path.name}: {faults}") from error


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "(file)"
