"""vLLM-Omni's older stage configs become deploy configs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from stage_pipeline.deploy import DeployError, parse_deploy
from stage_pipeline.deploy_conversion import convert

THINKER = {
    "stage_id": 0,
    "stage_type": "llm",
    "runtime": {"process": True, "devices": "0,1,2,3", "max_batch_size": 2},
    "engine_args": {
        "model_stage": "thinker",
        "model_arch": "StepAudio2ThinkerForConditionalGeneration",
        "worker_type": "ar",
        "worker_cls": "a.Worker",
        "scheduler_cls": "a.Scheduler",
        "tensor_parallel_size": 4,
        "gpu_memory_utilization": 0.7,
        "enforce_eager": True,
        "trust_remote_code": True,
        "enable_prefix_caching": False,
        "max_num_batched_tokens": 8192,
        "engine_output_type": "latent",
        "hf_overrides": {"architectures": ["Qwen2ForCausalLM"]},
        "custom_process_next_stage_input_func": "a.thinker2token2wav_async_chunk",
    },
    "is_comprehension": True,
    "final_output": True,
    "final_output_type": "text",
    "default_sampling_params": {"temperature": 0.7, "detokenize": True},
}
TOKEN2WAV = {
    "stage_id": 1,
    "runtime": {"process": True, "devices": 3, "max_batch_size": 1},
    "engine_args": {"model_stage": "token2wav", "gpu_memory_utilization": 0.3, "max_num_seqs": 6},
    "engine_input_source": [0],
    "custom_process_input_func": "a.thinker2token2wav",
}
RUNTIME = {"enabled": True, "defaults": {"window_size": -1}, "edges": [{"from": 0, "to": 1}]}


def old_file(tmp_path: Path, data: dict[str, object]) -> Path:
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_an_older_config_means_the_same_deploy(tmp_path: Path) -> None:
    path = old_file(tmp_path, {"async_chunk": True, "stage_args": [THINKER, TOKEN2WAV], "runtime": RUNTIME})

    made, left_out = convert(path)

    deploy = parse_deploy(made, path).deploy
    thinker, token2wav = deploy.stages
    assert (deploy.async_chunk, deploy.trust_remote_code, deploy.speaks) == (True, True, True)
    assert (thinker.processes, thinker.max_num_seqs) == (("0,1,2,3",), 2)
    assert (thinker.max_num_batched_tokens, thinker.enforce_eager) == (8192, True)
    assert thinker.default_sampling_params == {"temperature": 0.7, "detokenize": True}
    assert (token2wav.processes, token2wav.max_num_seqs) == (("3",), 6)
    assert {"runtime", "stage_args.0.engine_args.worker_cls", "stage_args.1.engine_input_source"} <= set(
        left_out
    )


@pytest.mark.parametrize(
    ("stage", "fault"),
    [
        (THINKER | {"fnal_output": True}, "stage_args.0.fnal_output: there is no such key"),
        (THINKER | {"runtime": {"device": "0"}}, "stage_args.0.runtime.device: there is no such key"),
        (THINKER | {"engine_args": {"x": 1}}, "stage_args.0.engine_args.x: there is no such key"),
        (THINKER | {"engine_args": []}, "stage_args.0.engine_args: has to be a mapping"),
        (
            THINKER | {"engine_args": {"model_stage": "talker"}},
            "stage_args.0.engine_args.model_stage: talker is no stage 0",
        ),
    ],
)
def test_what_nobody_knows_is_named(tmp_path: Path, stage: dict[str, object], fault: str) -> None:
    with pytest.raises(DeployError, match=f"old.yaml: {fault}"):
        convert(old_file(tmp_path, {"stage_args": [stage]}))


def test_a_config_of_today_is_not_converted(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="stages: this is a deploy config of today"):
        convert(old_file(tmp_path, {"stages": [{"stage_id": 0}]}))
