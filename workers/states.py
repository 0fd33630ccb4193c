"""The states of a job, its stages, and which moves are allowed. ``lua/`` makes the moves, atomically."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.stages import Task


class Status(StrEnum):
    """``queued → running → succeeded | failed | canceled``."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELED})


class Stage(StrEnum):
    """``fetch`` brings audio from a URL into the object store; the other two are the model's."""

    FETCH = "fetch"
    THINKER = "thinker"
    TOKEN2WAV = "token2wav"


IO_POOL = "io"


def stages_of(task: Task, fetches: bool) -> tuple[Stage, ...]:
    """The stages a job runs through. ASR has no Token2Wav: nothing can wait for audio that never comes."""
    head = (Stage.FETCH,) if fetches else ()
    model = (Stage.THINKER,) if task is Task.ASR else (Stage.THINKER, Stage.TOKEN2WAV)
    return head + model


def pool_of(stage: Stage, model: str) -> str:
    """The pool, and so the queue, that runs a stage of a model's jobs."""
    return IO_POOL if stage is Stage.FETCH else f"{stage.value}.{model}"


def pools_of(deploys: Iterable[DeployConfig]) -> list[str]:
    """The pools that the deploys need together."""
    stages = (Stage.THINKER, Stage.TOKEN2WAV)
    model_pools = [
        pool_of(stages[part.stage_id], deploy.model) for deploy in deploys for part in deploy.stages
    ]
    return [*model_pools, IO_POOL]
