"""Deploy configs: what loads, and how a fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from stage_pipeline.deploy import DeployError, load_deploy

CONFIGS = Path(__file__).parents[3] / "configs"


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    return load_deploy(path)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_config_loads(path: Path) -> None:
    assert load_deploy(path).stage(0) is not None


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="stages.0.max_num_seq"):
        load(tmp_path, "model: m\nengine: noop\nstages: [{stage_id: 0, max_num_seq: 4}]")


def test_a_value_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="stages.0.tensor_parallel_size"):
        load(tmp_path, "stages: [{stage_id: 0, tensor_parallel_size: two}]")


def test_a_model_name_that_could_not_be_a_queue_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="model"):
        load(tmp_path, "model: '../x y'\nengine: noop\nstages: [{stage_id: 0}]")


@pytest.mark.parametrize("text", ["", "- a\n- b", "model: [", "stages: []", "stages: [{stage_id: 1}]"])
def test_what_is_no_deploy_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DeployError):
        load(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="nowhere.yaml"):
        load_deploy(tmp_path / "nowhere.yaml")


def test_without_stage_1_nothing_is_spoken(tmp_path: Path) -> None:
    assert load(tmp_path, "model: m\nengine: noop\nstages: [{stage_id: 0}]").speaks is False  # type: ignore[attr-defined]  # a DeployConfig
