"""A supervisor starts what the deploy needs, and gives up on what cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from stage_pipeline.deploy import load_deploy
from stagewave import supervisor as supervisor_module
from stagewave.errors import StartFailed
from stagewave.supervisor import Supervisor, _programs
from workers.settings import Settings

STAGES = {
    "asr": "stages: [{stage_id: 0}]",
    "both": "stages: [{stage_id: 0, replicas: 2}, {stage_id: 1}]",
}


def deploy_file(folder: Path, stages: str) -> Path:
    path = folder / "deploy.yaml"
    path.write_text(f"model: noop\nengine: noop\n{stages}\n")
    return path


@pytest.mark.parametrize(
    ("stages", "names"),
    [
        ("asr", ["scheduler", "thinker", "io", "api"]),
        ("both", ["scheduler", "thinker", "thinker-2", "token2wav", "io", "api"]),
    ],
)
def test_each_stage_has_its_pool_and_its_replicas(tmp_path: Path, stages: str, names: list[str]) -> None:
    deploy = load_deploy(deploy_file(tmp_path, STAGES[stages]))

    assert [name for name, _ in _programs(deploy)] == names


def test_a_process_that_ends_five_times_while_starting_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a deploy of which one process cannot start
    monkeypatch.setattr(supervisor_module, "_programs", lambda deploy: [("thinker", ["no_such_module"])])
    said: list[str] = []
    settings = Settings(home=tmp_path / "home", port=0, config=deploy_file(tmp_path, STAGES["asr"]))
    supervisor = Supervisor(settings, said.append)

    # When it is started
    try:
        supervisor.start()
        with pytest.raises(StartFailed) as failure:
            supervisor.wait_ready(lambda parts: None)
    finally:
        supervisor.stop()

    # Then the start ends with the reason, after four restarts that were told, and leaves nothing
    assert "thinker ended 5 times while starting (exit code 1)" in str(failure.value)
    assert "No module named no_such_module" in str(failure.value)
    assert [line.partition(", log")[0] for line in said] == [
        f"thinker ended (exit code 1); starting it again in {pause} s" for pause in ("0.5", "1", "2", "4")
    ]
    assert supervisor.left_running() == []


def test_a_supervisor_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    Supervisor(Settings(home=tmp_path), print).stop()


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_programs", lambda deploy: [])
    settings = Settings(home=tmp_path / "home", port=0, config=deploy_file(tmp_path, STAGES["asr"]))
    supervisor = Supervisor(settings, print)
    try:
        supervisor.start()
    finally:
        supervisor.stop()

    assert supervisor.settings.webhook_secret == (tmp_path / "home" / "webhook.secret").read_text()
    for folder in (tmp_path / "home", *(tmp_path / "home").iterdir()):
        assert folder.stat().st_mode & 0o077 == 0, folder
