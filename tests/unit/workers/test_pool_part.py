"""What of a deploy a pool process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stage_pipeline.deploy import DeployError
from workers.pool_part import part_of
from workers.settings import Settings


def deploy_file(folder: Path, stages: str, model: str = "m") -> Path:
    path = folder / f"{model}.yaml"
    path.write_text(f"model: {model}\nengine: noop\nstages: [{stages}]")
    return path


def test_a_process_runs_the_stage_that_it_is_told(tmp_path: Path) -> None:
    config = deploy_file(tmp_path, "{stage_id: 1, max_num_seqs: 7}, {stage_id: 0, devices: 2}")
    settings = Settings(config=(config,))

    assert part_of(settings, "token2wav", None).stage.max_num_seqs == 7
    assert part_of(settings, "token2wav", None).key == "stages.0"
    assert part_of(settings, "thinker", None).stage.devices == "2"


def test_devices_of_one_process_go_before_those_of_the_config(tmp_path: Path) -> None:
    config = deploy_file(tmp_path, "{stage_id: 0, devices: '0,1', replicas: 2}")

    part = part_of(Settings(config=(config,)), "thinker", "5")

    assert (part.stage.processes, part.deploy.stages[0].devices, part.key) == (("5",), "5", "stages.0")


def test_a_process_that_does_not_know_what_to_run_is_told_what_to_say(tmp_path: Path) -> None:
    replicas = deploy_file(tmp_path, "{stage_id: 0, devices: '0,1', replicas: 2}")
    other = deploy_file(tmp_path, "{stage_id: 0}", "other")

    with pytest.raises(DeployError, match="stages.0.replicas: is 2, .* --devices .* 0,1"):
        part_of(Settings(config=(replicas,)), "thinker", None)
    with pytest.raises(DeployError, match="--devices 0,1: .* takes 1 GPU"):
        part_of(Settings(config=(replicas,)), "thinker", "0,1")
    with pytest.raises(DeployError, match="stages: the deploy config of other has no token2wav"):
        part_of(Settings(config=(other,)), "token2wav", None)
    with pytest.raises(DeployError, match="STAGEWAVE_CONFIG: names several deploy configs: .* --config"):
        part_of(Settings(config=(replicas, other)), "thinker", None)
