"""What of a deploy one pool process runs: a stage of it, on some of its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from stage_pipeline.deploy import DeployConfig, DeployError, StageConfig, load_deploy, with_devices
from workers.settings import Settings


@dataclass(frozen=True, slots=True)
class PoolPart:
    """What of a deploy this process runs."""

    deploy: DeployConfig
    stage: StageConfig

    @property
    def key(self) -> str:
        """Where in the config it stands."""
        return f"stages.{self.deploy.stages.index(self.stage)}"


def part_of(settings: Settings, stage_name: str, devices: str | None) -> PoolPart:
    """``devices``: on these instead of those in the config. Raises ``DeployError``."""
    if len(settings.config) > 1:
        raise DeployError(
            "STAGEWAVE_CONFIG: names several deploy configs: say with --config which one this process runs"
        )
    deploy = load_deploy(settings.config[0], settings.model_dir)
    index = next((i for i, stage in enumerate(deploy.stages) if stage.name == stage_name), None)
    if index is None:
        raise DeployError(f"stages: the deploy config of {deploy.model} has no {stage_name}")
    stage = deploy.stages[index]
    if devices is not None:
        stage = with_devices(stage, devices)
    elif stage.devices is not None and stage.replicas > 1:
        raise DeployError(
            f"stages.{index}.replicas: is {stage.replicas}, and this is one process: say with --devices on "
            f"which of the GPUs {stage.devices} it runs"
        )
    stages = tuple(stage if i == index else other for i, other in enumerate(deploy.stages))
    return PoolPart(deploy.model_copy(update={"stages": stages}), stage)
