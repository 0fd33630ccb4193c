"""What the loader tells an engine of the other stage."""

from __future__ import annotations

import pytest

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.engines.load import share_a_gpu


@pytest.mark.parametrize(
    ("thinker", "token2wav", "shared"),
    [("0", "0", True), ("0,1", "1", True), ("0,1", "2", False), (None, None, True), ("0", None, True)],
)
def test_stages_meet_on_a_gpu_unless_the_config_keeps_them_apart(
    thinker: str | None, token2wav: str | None, shared: bool
) -> None:
    stages = [
        {"stage_id": 0, "devices": thinker, "replicas": 2 if thinker == "0,1" else 1},
        {"stage_id": 1, "devices": token2wav},
    ]
    deploy = DeployConfig.model_validate({"model": "m", "engine": "noop", "stages": stages})
    assert share_a_gpu(deploy) is shared
