"""Which voices there are: those of the deploy and its workers, and those that clients made."""

from __future__ import annotations

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.backend import Backend
from workers.voice import DEFAULT_VOICE


def built_in_voices(backend: Backend, deploy: DeployConfig) -> list[str]:
    """The names that the deploy config and live workers give; ``default`` is always among them."""
    if not deploy.speaks:
        return []
    live = [worker for worker in backend.pools.workers() if worker.model == deploy.model]
    return sorted({DEFAULT_VOICE, *deploy.voices, *(voice for worker in live for voice in worker.voices)})


def check_voice(backend: Backend, deploy: DeployConfig, name: str) -> None:
    """Whether a job may be made with this voice. Raises ``voice_unknown``, ``voice_failed``."""
    if name == DEFAULT_VOICE or name in deploy.voices:
        return
    made = backend.voices.find(deploy.model, name)
    if made is not None:
        if made.status == "failed":
            raise StagewaveError(ErrorCode.VOICE_FAILED, "the voice could not be prepared", field="voice")
        return
    if name not in built_in_voices(backend, deploy):
        raise StagewaveError(ErrorCode.VOICE_UNKNOWN, "there is no such voice", field="voice")
