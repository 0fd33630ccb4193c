"""vLLM-Omni's older stage configs (``stage_args:``) as deploy configs of today's form."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from stage_pipeline.deploy import YamlMap, read_yaml
from stage_pipeline.deploy_config import DeployError

_OF_FILE = ("async_chunk", "trust_remote_code", "stage_args")
_OF_STAGE = ("stage_id", "runtime", "engine_args", "default_sampling_params")
_OF_RUNTIME = ("devices", "max_batch_size", "num_replicas")
_OF_ENGINE = (
    "max_num_seqs",
    "tensor_parallel_size",
    "gpu_memory_utilization",
    "enforce_eager",
    "max_num_batched_tokens",
    "max_model_len",
    "hf_overrides",
    "trust_remote_code",
)
_DROPPED = {
    # How the stages are joined is the queue's business; a stage's own ``runtime`` is read.
    "": {"runtime"},
    "stage_args": {
        "custom_process_input_func",
        "engine_input_source",
        "final_output",
        "final_output_type",
        "input_connectors",
        "is_comprehension",
        "output_connectors",
        "prompt_expand_func",
        "stage_type",
    },
    "runtime": {"process", "requires_multimodal_data"},
    # The engines choose these themselves.
    "engine_args": {
        "async_scheduling",
        "custom_process_next_stage_input_func",
        "disable_hybrid_kv_cache_manager",
        "distributed_executor_backend",
        "dtype",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "engine_output_type",
        "hf_config_name",
        "mm_processor_cache_gb",
        "model_arch",
        "model_stage",
        "scheduler_cls",
        "skip_mm_profiling",
        "worker_cls",
        "worker_type",
    },
}
"""Keys of each part of the older form that mean nothing here."""
_STAGES = {"thinker": 0, "step_audio2_thinker": 0, "token2wav": 1}
"""What the older form calls the stages of Step-Audio2."""


def convert(path: Path) -> tuple[YamlMap, tuple[str, ...]]:
    """The deploy config that an older stage config means, and the keys that were left out. Raises
    ``DeployError`` naming a key that nobody knows."""
    try:
        return _Conversion().of_file(read_yaml(path))
    except _Unknown as error:
        raise DeployError(f"{path.name}: {error}") from None


class _Unknown(DeployError):
    pass


class _Conversion:
    def __init__(self) -> None:
        self._left_out: list[str] = []

    def of_file(self, data: YamlMap) -> tuple[YamlMap, tuple[str, ...]]:
        if "stages" in data:
            raise _Unknown("stages: this is a deploy config of today's form already")
        kept = self._kept(data, _OF_FILE, "", "")
        stages = kept.pop("stage_args", None)
        if not isinstance(stages, list):
            raise _Unknown("stage_args: is no list, or is missing: this is no config of the older form")
        made = [self._stage(stage, f"stage_args.{index}") for index, stage in enumerate(stages)]
        # What stood in each stage is one for all now.
        if any([stage.pop("trust_remote_code", False) for stage in made]):
            kept["trust_remote_code"] = True
        return {**kept, "stages": made}, tuple(self._left_out)

    def _stage(self, stage: object, where: str) -> YamlMap:
        outer = self._kept(stage, _OF_STAGE, where, "stage_args")
        number = outer.get("stage_id")
        runtime = self._kept(outer.pop("runtime", {}), _OF_RUNTIME, f"{where}.runtime", "runtime")
        arguments = outer.pop("engine_args", {})
        name = arguments.get("model_stage") if isinstance(arguments, dict) else None
        if name is not None and _STAGES.get(str(name)) != number:
            raise _Unknown(
                f"{where}.engine_args.model_stage: {name} is no stage {number} of Step-Audio2: "
                "0 is its thinker, and 1 is token2wav"
            )
        engine = self._kept(arguments, _OF_ENGINE, f"{where}.engine_args", "engine_args")
        made: YamlMap = {"stage_id": number}
        if "devices" in runtime:
            made["devices"] = str(runtime["devices"])
        if "num_replicas" in runtime:
            made["replicas"] = runtime["num_replicas"]
        # Both say how many requests run at a time: the engine took its own first.
        if "max_batch_size" in runtime:
            made["max_num_seqs"] = runtime["max_batch_size"]
        return {**made, **engine, **outer}

    def _kept(self, data: object, kept: tuple[str, ...], where: str, part: str) -> YamlMap:
        """Of one part of the file what is kept; what is neither kept nor to be left out is refused."""
        if not isinstance(data, dict):
            raise _Unknown(f"{where}: has to be a mapping of keys")
        found: YamlMap = {}
        for key, value in cast(YamlMap, data).items():
            name = f"{where}.{key}" if where else str(key)
            if key in kept:
                found[key] = value
            elif key in _DROPPED[part]:
                self._left_out.append(name)
            else:
                raise _Unknown(f"{name}: there is no such key")
        return found
