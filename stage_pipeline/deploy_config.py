"""What a deploy config may say, and whether it makes sense; ``deploy`` reads the files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from stage_pipeline.voice_check import LONGEST_S, SHORTEST_S

_DEVICE = re.compile(r"\d{1,3}|(GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_ROUNDING = 1e-6
"""0.7 + 0.2 + 0.1 is more than 1 to a computer."""


class DeployError(ValueError):
    """A deploy that cannot run as it is configured; the message names the key at fault."""


class KeyFault(ValueError):
    """What is wrong with ``key``, a name within the part of the config that is checked."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Strict):
    """What one job may ask for."""

    audio_s: float = Field(default=4 * 3600, gt=0)
    """Longest audio input, in seconds."""
    text_chars: int = Field(default=200_000, gt=0)
    audio_out_s: float = Field(default=6 * 3600, gt=0)
    """Longest audio output, in seconds; a stage that makes more is stopped with ``length``."""
    voice_s: float = Field(default=LONGEST_S, ge=SHORTEST_S, le=LONGEST_S)
    """Longest prompt of a voice that clients make, in seconds. Step-Audio2 keeps so much room for every
    stream, and attends to it: less is quicker and smaller."""


def _device_list(value: object) -> object:
    """``0`` and ``"0, 1"`` become ``"0"`` and ``"0,1"``."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return value
    devices = [device.strip() for device in value.split(",")]
    if not all(_DEVICE.fullmatch(device) for device in devices):
        raise ValueError('GPUs are named by their numbers, as in "0,1"')
    return ",".join(devices)


class StageConfig(_Strict):
    """One stage's pool. ``stage_id`` 0 is the Thinker, 1 is Token2Wav."""

    stage_id: Literal[0, 1]
    devices: Annotated[str, BeforeValidator(_device_list)] | None = None
    """The GPUs of the pool, ``tensor_parallel_size`` for each of its ``replicas``: numbers among those
    that the pool's processes may see. Unset: no process is pinned."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=1, validation_alias=AliasChoices("replicas", "num_replicas"))
    max_num_seqs: int = Field(default=1, ge=1)
    """Jobs that each process runs at a time."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """The share of each GPU's memory that a process may take."""
    enforce_eager: bool | None = None
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    max_model_len: int | None = Field(default=None, ge=1)
    default_sampling_params: dict[str, JsonValue] = Field(default_factory=dict)
    hf_overrides: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return ("thinker", "token2wav")[self.stage_id]

    @property
    def processes(self) -> tuple[str | None, ...]:
        """The devices of each process of the pool; None where none are named."""
        if self.devices is None:
            return (None,) * self.replicas
        devices, size = self.devices.split(","), self.tensor_parallel_size
        return tuple(",".join(devices[i : i + size]) for i in range(0, len(devices), size))

    @model_validator(mode="after")
    def _devices_suffice(self) -> StageConfig:
        if self.stage_id == 1 and self.tensor_parallel_size != 1:
            raise KeyFault("tensor_parallel_size", "Token2Wav runs on one GPU: use replicas for more")
        if self.devices is None:
            return self
        named, wanted = len(self.devices.split(",")), self.replicas * self.tensor_parallel_size
        if named != wanted:
            raise KeyFault(
                "devices",
                f"names {_gpus(named)}, but replicas {self.replicas} x tensor_parallel_size "
                f"{self.tensor_parallel_size} need {wanted}",
            )
        for devices in self.processes:
            split = (devices or "").split(",")
            if len(set(split)) != len(split):
                raise KeyFault("devices", f"one process would get the same GPU twice ({devices})")
        return self


class _OtherPlatforms(_Strict):
    """vLLM-Omni's overrides for hardware that Stagewave does not run on: read over."""

    npu: JsonValue = None
    xpu: JsonValue = None
    rocm: JsonValue = None
    musa: JsonValue = None


class DeployConfig(_Strict):
    """A whole deploy. Without a stage 1 there is no Token2Wav pool, and only ASR is served."""

    model: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    engine: Literal["embedded", "step_audio2", "noop"]
    model_dir: Path | None = None
    """The model's files in the official layout, for an engine that does not bring its own."""
    async_chunk: bool | None = None
    """Default mode of a job: True ``async_chunk``, False ``sequential``, unset ``auto``."""
    trust_remote_code: bool = False
    prompt_dialect: Literal["official", "im"] = "official"
    """How Step-Audio2's chat turns are marked: ``<|BOT|>…<|EOT|>`` as in the official implementation, or
    ``<|im_start|>…<|im_end|>`` as in vLLM-Omni."""
    pipeline: Literal["step_audio_2", "step_audio_2_asr"] | None = None
    """vLLM-Omni's name for the stages that there are."""
    data_parallel_size: Literal[1] = 1
    pipeline_parallel_size: Literal[1] = 1
    platforms: _OtherPlatforms | None = None
    voices: dict[str, str] = Field(default_factory=dict)
    """Voice name to prompt wav (or to the embedded engine's built-in voice)."""
    limits: Limits = Field(default_factory=Limits)
    stages: tuple[StageConfig, ...]

    @model_validator(mode="after")
    def _stages_make_sense(self) -> DeployConfig:
        ids = [stage.stage_id for stage in self.stages]
        if len(set(ids)) != len(ids):
            raise KeyFault("stages", "each stage_id may stand once")
        if 0 not in ids:
            raise KeyFault("stages", "stage_id 0 (the Thinker) is missing")
        if self.pipeline == "step_audio_2_asr" and self.speaks:
            raise KeyFault("pipeline", "step_audio_2_asr has no stage_id 1: remove one of the two")
        return self

    def stage(self, stage_id: int) -> StageConfig | None:
        return next((stage for stage in self.stages if stage.stage_id == stage_id), None)

    @property
    def takes_voices(self) -> bool:
        """Whether clients can make voices: a VITS model has its own for good."""
        return self.speaks and self.engine != "embedded"

    @property
    def speeds(self) -> tuple[float, float]:
        """The slowest and the fastest that the engine can speak; 1 is a voice's own speed."""
        return (0.25, 2.0) if self.engine == "embedded" else (1.0, 1.0)

    @property
    def speaks(self) -> bool:
        """Whether this deploy can make audio at all."""
        return self.stage(1) is not None


def with_devices(stage: StageConfig, devices: str) -> StageConfig:
    """One process of the pool, on these GPUs instead of those in the config. Raises ``DeployError``."""
    try:
        alone = {"devices": _device_list(devices), "replicas": 1}
        return StageConfig.model_validate({**stage.model_dump(), **alone})
    except ValueError as error:
        wanted = f"{_gpus(stage.tensor_parallel_size)}, as tensor_parallel_size says"
        raise DeployError(f"--devices {devices}: a process of this pool takes {wanted}") from error


def check_sharing(deploys: Sequence[DeployConfig]) -> None:
    """Whether the deploys fit on one machine together. Raises ``DeployError`` naming the key."""
    shares: dict[str, list[tuple[str, float | None]]] = defaultdict(list)
    for deploy in deploys:
        where = f"{deploy.model}: " if len(deploys) > 1 else ""
        for index, stage in enumerate(deploy.stages):
            key = f"{where}stages.{index}.gpu_memory_utilization"
            for device in (stage.devices or "").split(","):
                if device:
                    shares[device].append((key, stage.gpu_memory_utilization))
    for device, taken in shares.items():
        _check_device(device, taken)


def _check_device(device: str, taken: list[tuple[str, float | None]]) -> None:
    if len(taken) == 1:
        return
    total = 0.0
    for key, share in taken:
        if share is None:
            raise DeployError(
                f"{key}: is not set, but {len(taken)} processes share GPU {device}: "
                "say how much of its memory each may take"
            )
        total += share
    if total > 1 + _ROUNDING:
        raise DeployError(
            f"{taken[-1][0]}: the {len(taken)} processes on GPU {device} would take {total:g} "
            "of its memory together: 1 is all there is"
        )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
