"""Deploy configs: what loads, and how a fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from stage_pipeline.deploy import (
    DeployConfig,
    DeployError,
    check_files,
    check_sharing,
    load_deploy,
    load_deploys,
    read_deploy_file,
    with_devices,
)

CONFIGS = Path(__file__).parents[3] / "configs"
THINKER = {
    "stage_id": 0,
    "devices": "0,1",
    "tensor_parallel_size": 2,
    "max_num_seqs": 1,
    "gpu_memory_utilization": 0.7,
    "enforce_eager": True,
    "async_scheduling": False,
    "max_num_batched_tokens": 8192,
    "default_sampling_params": {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": -1,
        "max_tokens": 1024,
        "seed": 42,
        "repetition_penalty": 1.05,
    },
}
TOKEN2WAV = {
    "stage_id": 1,
    "devices": "1",
    "max_num_seqs": 1,
    "gpu_memory_utilization": 0.2,
    "enforce_eager": True,
    "async_scheduling": False,
    "max_num_batched_tokens": 4096,
    "hf_overrides": {"architectures": ["StepAudio2Token2WavForConditionalGeneration"]},
    "default_sampling_params": {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "max_tokens": 1, "seed": 42},
}
COMMON = {"async_chunk": False, "trust_remote_code": True, "enable_prefix_caching": False}
VLLM_OMNI = {
    "sequential": {**COMMON, "stages": [THINKER, TOKEN2WAV]},
    "async_chunk": {**COMMON, "async_chunk": True, "stages": [THINKER, TOKEN2WAV]},
    "asr": {"pipeline": "step_audio_2_asr", **COMMON, "stages": [THINKER]},
    "ci": {
        "pipeline": "step_audio_2_asr",
        **COMMON,
        "stages": [
            {
                **THINKER,
                "devices": "0",
                "tensor_parallel_size": 1,
                "max_model_len": 1024,
                "skip_mm_profiling": True,
                "hf_overrides": {"architectures": ["StepAudio2ThinkerForConditionalGeneration"]},
                "default_sampling_params": {"max_tokens": 256, "detokenize": True},
            }
        ],
    },
    "with all that others have": {
        **COMMON,
        "connectors": {"shm": {"name": "SharedMemoryConnector", "extra": {"codec_streaming": True}}},
        "edges": [{"from": 0, "to": 1}],
        "platforms": {"npu": {"stages": [{"stage_id": 0, "devices": "0,1,2,3"}]}},
        "dtype": "bfloat16",
        "data_parallel_size": 1,
        "stages": [
            {**THINKER, "output_connectors": {"to_stage_1": "shm"}, "num_replicas": 1},
            {**TOKEN2WAV, "input_connectors": {"from_stage_0": "shm"}, "mm_processor_cache_gb": 0},
        ],
    },
}
"""As the deploy files of vLLM-Omni for Step-Audio2 are, key for key."""


def load(tmp_path: Path, text: str) -> DeployConfig:
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    return load_deploy(path)


def noop(*stages: str, **more: str) -> str:
    lines = ["engine: noop", f"stages: [{', '.join(stages)}]"]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in ({"model": "m"} | more).items())])


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_config_loads(path: Path) -> None:
    assert load_deploy(path).stage(0) is not None


@pytest.mark.parametrize("name", VLLM_OMNI)
def test_a_deploy_file_of_vllm_omni_loads_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(yaml.safe_dump(VLLM_OMNI[name]))

    deploy = load_deploy(path, model_dir=tmp_path)

    assert (deploy.engine, deploy.model_dir) == ("step_audio2", tmp_path)
    assert deploy.async_chunk is VLLM_OMNI[name]["async_chunk"]
    assert deploy.speaks is (len(VLLM_OMNI[name]["stages"]) == 2)
    thinker = deploy.stages[0]
    assert thinker.processes == (("0",) if name == "ci" else ("0,1",))
    assert (thinker.max_num_seqs, thinker.gpu_memory_utilization) == (1, 0.7)
    assert thinker.default_sampling_params == VLLM_OMNI[name]["stages"][0]["default_sampling_params"]


def test_what_is_read_over_is_told(tmp_path: Path) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(yaml.safe_dump(VLLM_OMNI["asr"]))

    assert read_deploy_file(path).ignored == ("enable_prefix_caching", "stages.0.async_scheduling")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            noop("{stage_id: 0, max_num_seq: 4}"),
            "stages.0.max_num_seq: there is no such key; is max_num_seqs",
        ),
        (noop("{stage_id: 0}", stagess="1"), "stagess: there is no such key; is stages meant"),
        (
            noop("{stage_id: 0}", limits="{audio: 3}"),
            "limits.audio: there is no such key; is audio_s meant",
        ),
        (noop("{stage_id: 0}", quite_other="1"), "quite_other: there is no such key$"),
        (noop("{stage_id: 0, tensor_parallel_size: two}"), "stages.0.tensor_parallel_size"),
        (noop("{stage_id: 0}", model="'../x y'"), "model: "),
        (noop("{stage_id: 0}", platforms="{cuda: {}}"), "platforms.cuda: "),
        (noop("{stage_id: 0}", data_parallel_size="2"), "data_parallel_size: "),
        (noop("{stage_id: 0}", base_config="a.yaml"), "base_config: there is no such key"),
        (noop("{stage_id: 0}", "{stage_id: 1}", pipeline="step_audio_2_asr"), "pipeline: step_audio_2_asr"),
        ("stage_args: [{stage_id: 0}]", "stage_args: .* `stagewave config convert deploy.yaml`"),
    ],
)
def test_a_fault_is_named_by_its_key(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(DeployError, match=f"deploy config deploy.yaml: {fault}"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["", "- a\n- b", "model: [", "1: 2", "stages: []", "stages: [{stage_id: 1}]"]
)
def test_what_is_no_deploy_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DeployError):
        load(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="nowhere.yaml"):
        load_deploy(tmp_path / "nowhere.yaml")


def test_without_stage_1_nothing_is_spoken(tmp_path: Path) -> None:
    assert load(tmp_path, noop("{stage_id: 0}")).speaks is False


@pytest.mark.parametrize(
    ("stage", "processes"),
    [
        ("{stage_id: 0}", (None,)),
        ("{stage_id: 0, replicas: 2}", (None, None)),
        ("{stage_id: 0, devices: 3}", ("3",)),
        ("{stage_id: 0, devices: '0, 1', replicas: 2}", ("0", "1")),
        ("{stage_id: 0, devices: '0,1', tensor_parallel_size: 2}", ("0,1",)),
        ("{stage_id: 0, devices: '0,1,2,3', tensor_parallel_size: 2, num_replicas: 2}", ("0,1", "2,3")),
        ("{stage_id: 0, devices: '0,0', replicas: 2, gpu_memory_utilization: 0.5}", ("0", "0")),
        ("{stage_id: 0, devices: GPU-8f2a-11}", ("GPU-8f2a-11",)),
    ],
)
def test_the_gpus_are_dealt_out_to_the_processes(
    tmp_path: Path, stage: str, processes: tuple[str | None, ...]
) -> None:
    assert load(tmp_path, noop(stage)).stages[0].processes == processes


@pytest.mark.parametrize(
    ("stage", "fault"),
    [
        ("{stage_id: 0, devices: '0,1'}", "devices: names 2 GPUs, but .* need 1"),
        ("{stage_id: 0, devices: 0, replicas: 2}", "devices: names 1 GPU, but .* need 2"),
        ("{stage_id: 0, devices: 0, tensor_parallel_size: 2}", "devices: names 1 GPU, but .* need 2"),
        ("{stage_id: 0, devices: '1,1', tensor_parallel_size: 2}", "devices: .* the same GPU twice"),
        ("{stage_id: 0, devices: 'a;b'}", "devices: GPUs are named"),
        ("{stage_id: 0, devices: ''}", "devices: GPUs are named"),
        ("{stage_id: 0, devices: '0,0', replicas: 2}", "gpu_memory_utilization: is not set"),
    ],
)
def test_gpus_that_do_not_work_out_are_refused(tmp_path: Path, stage: str, fault: str) -> None:
    with pytest.raises(DeployError, match=f"stages.0.{fault}"):
        load(tmp_path, noop(stage))


def test_token2wav_is_not_spread_over_gpus(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="stages.1.tensor_parallel_size: "):
        load(tmp_path, noop("{stage_id: 0}", "{stage_id: 1, tensor_parallel_size: 2}"))


@pytest.mark.parametrize(
    ("thinker", "token2wav", "fault"),
    [
        ("0.7", "0.3", None),
        ("0.7", "0.31", "stages.1.gpu_memory_utilization: .* on GPU 0 would take 1.01"),
        ("0.7", "null", "stages.1.gpu_memory_utilization: is not set, but 2 processes share GPU 0"),
    ],
)
def test_stages_on_one_gpu_have_to_fit_on_it(
    tmp_path: Path, thinker: str, token2wav: str, fault: str | None
) -> None:
    stages = [
        f"{{stage_id: {number}, devices: 0, gpu_memory_utilization: {share}}}"
        for number, share in enumerate((thinker, token2wav))
    ]
    if fault is None:
        assert load(tmp_path, noop(*stages)).speaks
        return
    with pytest.raises(DeployError, match=fault):
        load(tmp_path, noop(*stages))


def test_deploys_side_by_side_have_names_of_their_own_and_fit_together(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.yaml", "b.yaml", "c.yaml")]
    stage = "{stage_id: 0, devices: 0, gpu_memory_utilization: 0.6}"
    for path, model in zip(paths, ("one", "two", "one"), strict=True):
        path.write_text(noop(stage, model=model))

    with pytest.raises(DeployError, match="two: stages.0.gpu_memory_utilization: .* would take 1.2"):
        check_sharing(load_deploys(paths[:2]))
    with pytest.raises(DeployError, match="model: two deploy configs have the name one"):
        load_deploys(paths[::2])


def test_one_process_of_a_pool_may_get_other_gpus(tmp_path: Path) -> None:
    stage = load(tmp_path, noop("{stage_id: 0, devices: '0,1', replicas: 2, max_num_seqs: 5}")).stages[0]

    moved = with_devices(stage, "7")

    assert (moved.processes, moved.max_num_seqs) == (("7",), 5)
    for wrong in ("0,1", "x"):
        with pytest.raises(DeployError, match=f"--devices {wrong}: .* takes 1 GPU"):
            with_devices(stage, wrong)


def test_files_lie_beside_the_config_that_names_them(tmp_path: Path) -> None:
    text = "model_dir: mini\nvoices: {a: a.wav, b: /x/b.wav}\nstages: [{stage_id: 0}]"

    deploy = load(tmp_path, text)

    assert deploy.model_dir == tmp_path / "mini"
    assert deploy.voices == {"a": str(tmp_path / "a.wav"), "b": "/x/b.wav"}


def test_files_that_are_missing_are_named_with_their_key(tmp_path: Path) -> None:
    deploy = load(tmp_path, "model_dir: mini\nvoices: {a: a.wav}\nstages: [{stage_id: 0}]")

    with pytest.raises(DeployError, match="model_dir: .*mini has no config.json"):
        check_files(deploy)
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "config.json").write_text("{}")
    with pytest.raises(DeployError, match="voices.a: .*a.wav is no file"):
        check_files(deploy)
    (tmp_path / "a.wav").write_bytes(b"")
    check_files(deploy)
