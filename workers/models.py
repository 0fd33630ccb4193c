"""Which of the models that are served a request means."""

from __future__ import annotations

from collections.abc import Sequence

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task


def deploy_for(deploys: Sequence[DeployConfig], model: str | None, task: Task) -> DeployConfig:
    """The deploy of that name; without a name the first one that can do the task, or else the first, which
    can say why not. Raises ``model_unknown``."""
    if model:
        return deploy_of(deploys, model)
    able = (deploy for deploy in deploys if task is Task.ASR or deploy.speaks)
    return next(able, deploys[0])


def deploy_of(deploys: Sequence[DeployConfig], model: str) -> DeployConfig:
    """Raises ``model_unknown``."""
    for deploy in deploys:
        if deploy.model == model:
            return deploy
    raise StagewaveError(ErrorCode.MODEL_UNKNOWN, "this server does not serve that model", field="model")
