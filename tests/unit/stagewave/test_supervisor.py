"""A supervisor starts what the deploys need, and gives up on what cannot start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stage_pipeline.deploy import load_deploys
from stagewave import supervisor as supervisor_module
from stagewave.errors import StartFailed, WrongConfig
from stagewave.supervisor import Program, Supervisor, part_names, programs_of
from workers.settings import Settings

STAGES = {
    "asr": "stages: [{stage_id: 0}]",
    "both": "stages: [{stage_id: 1}, {stage_id: 0, replicas: 2}]",
    "on GPUs": "stages: [{stage_id: 0, replicas: 2, devices: '0,1'}, {stage_id: 1, devices: 2}]",
    "spread": "stages: [{stage_id: 0, devices: '0,1', tensor_parallel_size: 2}]",
}


def deploy_file(folder: Path, stages: str, model: str = "noop") -> Path:
    path = folder / f"{model}.yaml"
    path.write_text(f"model: {model}\nengine: noop\n{stages}\n")
    return path


def programs(*configs: Path) -> dict[str, list[str]]:
    """The arguments of each process, without those that are the same in all."""
    found = programs_of(load_deploys(configs), configs)
    return {program.name: program.arguments[3:] for program in found}


@pytest.mark.parametrize(
    ("stages", "names"),
    [
        ("asr", ["scheduler", "thinker", "io", "api"]),
        ("both", ["scheduler", "thinker", "thinker-2", "token2wav", "io", "api"]),
    ],
)
def test_each_stage_has_its_pool_and_its_replicas(tmp_path: Path, stages: str, names: list[str]) -> None:
    assert list(programs(deploy_file(tmp_path, STAGES[stages]))) == names


@pytest.mark.parametrize(
    ("stages", "devices"),
    [
        ("asr", {"thinker": None}),
        ("on GPUs", {"thinker": "0", "thinker-2": "1", "token2wav": "2"}),
        ("spread", {"thinker": "0,1"}),
    ],
)
def test_each_process_gets_its_gpus(tmp_path: Path, stages: str, devices: dict[str, str | None]) -> None:
    config = deploy_file(tmp_path, STAGES[stages])

    found = programs(config)

    for name, gpus in devices.items():
        pinned = [] if gpus is None else ["--devices", gpus]
        assert found[name] == ["--config", str(config), *pinned]


def test_the_pools_of_several_models_bear_their_names(tmp_path: Path) -> None:
    first = deploy_file(tmp_path, STAGES["both"], "my-model.v2")
    second = deploy_file(tmp_path, STAGES["asr"], "other")

    assert list(programs(first, second)) == [
        "scheduler",
        "thinker.my-model.v2",
        "thinker.my-model.v2-2",
        "token2wav.my-model.v2",
        "thinker.other",
        "io",
        "api",
    ]


def test_parts_are_named_shortly_unless_there_are_two_of_a_kind() -> None:
    checks = ["redis", "object_store", "pool:thinker.a", "pool:thinker.b.c", "pool:token2wav.a", "pool:io"]

    assert list(part_names(checks).values()) == [
        "broker",
        "object store",
        "thinker.a",
        "thinker.b.c",
        "token2wav",
        "io",
    ]


def test_a_process_that_ends_five_times_while_starting_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a deploy of which one process cannot start
    run_only(monkeypatch, Program("thinker", "pool", ["no_such_module"]))
    said: list[str] = []
    settings = Settings(home=tmp_path / "home", port=0, config=(deploy_file(tmp_path, STAGES["asr"]),))
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


def test_a_pool_that_cannot_run_as_configured_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong voice in a config was found out only after five starts."""
    # Given a config whose fault only the engine can see
    config = deploy_file(tmp_path, "stages: [{stage_id: 0}, {stage_id: 1}]\nvoices: {slow: very}")
    run_only(monkeypatch, Program("token2wav", "pool", ["workers.pool", "--stage", "token2wav"]))
    said: list[str] = []
    settings = Settings(home=tmp_path / "home", port=free_port(), config=(config,))
    supervisor = Supervisor(settings, said.append)

    # When it is started
    try:
        supervisor.start()
        with pytest.raises(WrongConfig) as failure:
            supervisor.wait_ready(lambda parts: None)
    finally:
        supervisor.stop()

    # Then the start ends at the first try with what is to be changed
    assert str(failure.value).startswith("token2wav cannot start: voices.slow: ")
    assert said == []


def test_a_model_folder_without_a_model_is_told_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "deploy.yaml"
    config.write_text("stages: [{stage_id: 0}]")

    for model_dir, fault in ((None, "model_dir: is not set"), (tmp_path, "model_dir: .* no config.json")):
        settings = Settings(home=tmp_path / "home", config=(config,), model_dir=model_dir)
        with pytest.raises(WrongConfig, match=fault):
            Supervisor(settings, print).start()

    assert not (tmp_path / "home").exists()


def test_a_supervisor_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    Supervisor(Settings(home=tmp_path), print).stop()


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_only(monkeypatch)
    settings = Settings(home=tmp_path / "home", port=0, config=(deploy_file(tmp_path, STAGES["asr"]),))
    supervisor = Supervisor(settings, print)
    try:
        supervisor.start()
    finally:
        supervisor.stop()

    assert supervisor.settings.webhook_secret == (tmp_path / "home" / "webhook.secret").read_text()
    for folder in (tmp_path / "home", *(tmp_path / "home").iterdir()):
        assert folder.stat().st_mode & 0o077 == 0, folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_only(monkeypatch: pytest.MonkeyPatch, *programs: Program) -> None:
    monkeypatch.setattr(supervisor_module, "programs_of", lambda deploys, configs: programs)
