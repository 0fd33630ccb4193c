"""From a deploy config to a running engine. Each function imports the engine of its own stage only."""

from __future__ import annotations

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
        case _:
            raise _missing(deploy)


def _missing(deploy: DeployConfig) -> DeployError:
    return DeployError(f"engine {deploy.engine} is not part of this installation")
