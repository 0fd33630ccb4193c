"""From a deploy config to a running engine. Each function imports the engine of its own stage only."""

from __future__ import annotations

import os
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

            return NoopThinker()
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
    options = Token2WavOptions(
        device="cuda" if cuda else "cpu",
        dtype=torch.float16 if cuda else torch.float32,
        streams=stage.max_num_seqs if stage else 1,
        graphs=not (stage and stage.enforce_eager),
    )
    return StepAudio2Token2Wav(deploy.model_dir, cache, deploy.voices, os.environ, options)


def _missing(deploy: DeployConfig) -> DeployError:
    return DeployError(f"engine {deploy.engine} is not part of this installation")
