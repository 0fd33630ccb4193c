"""Subcommands that need no server, and how the command starts and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from stagewave.command import stagewave
from stagewave.errors import WrongConfig

STAGE = {"stage_id": 0, "devices": "0", "gpu_memory_utilization": 0.6}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(stagewave, [str(argument) for argument in arguments], standalone_mode=False)


def deploy_file(path: Path, **more: object) -> Path:
    path.write_text(yaml.safe_dump({"model": path.stem, "engine": "noop", "stages": [STAGE], **more}))
    return path


def test_config_check_says_what_a_deploy_starts_and_what_is_read_over(tmp_path: Path) -> None:
    stages = [{**STAGE, "devices": "0,1", "replicas": 2, "max_num_seqs": 4}]
    path = deploy_file(tmp_path / "one.yaml", stages=stages, dtype="bfloat16")

    done = run("config", "check", path)

    assert (done.return_value, done.output.splitlines()) == (
        0,
        [
            f"{path}: model one, engine noop, serves asr",
            "  thinker: 4 jobs at a time, GPU 0",
            "  thinker: 4 jobs at a time, GPU 1",
            "  read over: dtype",
        ],
    )


def test_config_check_finds_deploys_that_do_not_fit_together(tmp_path: Path) -> None:
    paths = [deploy_file(tmp_path / f"{name}.yaml") for name in ("one", "two")]

    assert [run("config", "check", path).return_value for path in paths] == [0, 0]
    done = run("config", "check", *paths)
    assert isinstance(done.exception, WrongConfig)
    assert "two: stages.0.gpu_memory_utilization: " in str(done.exception)


def test_config_convert_makes_a_deploy_config_and_tells_what_it_left_out(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    stage = {"stage_id": 0, "runtime": {"devices": "0,1"}, "engine_args": {"worker_type": "ar"}}
    old.write_text(yaml.safe_dump({"stage_args": [stage]}))

    # What is wrong with the old one is said of the new one, which is there to be mended.
    done = run("config", "convert", old, "--out", new)
    assert yaml.safe_load(new.read_text()) == {"stages": [{"stage_id": 0, "devices": "0,1"}]}
    assert "stage_args.0.engine_args.worker_type" in done.stderr
    assert isinstance(done.exception, WrongConfig) and "stages.0.devices" in str(done.exception)

    stage["engine_args"] = {"tensor_parallel_size": 2}
    old.write_text(yaml.safe_dump({"stage_args": [stage]}))
    assert run("config", "convert", old).return_value == 0


def test_submit_looks_for_the_folder_to_save_in_before_it_makes_a_job(tmp_path: Path) -> None:
    """It was found missing only when the job had been waited for."""
    done = run("submit", "tts", "Hello.", "--out", tmp_path / "nowhere" / "a.wav")

    assert "there is no such folder to save in" in str(done.exception)


@pytest.mark.parametrize("part", [("api",), ("scheduler",), ("worker", "--stage", "io")])
def test_a_part_without_its_settings_ends_as_one_that_is_not_started_again(
    part: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STAGEWAVE_REDIS_URL", raising=False)

    done = run(*part)

    assert (done.exit_code, done.stderr) == (78, "cannot start: STAGEWAVE_REDIS_URL is not set\n")


@pytest.mark.parametrize("after_ms", [40, 80, 120, 160, 240])
def test_a_ctrl_c_while_the_command_starts_is_quiet(after_ms: int) -> None:
    """In the first fifth of a second it printed a traceback."""
    # As the installed script does it, with a word once Python itself has started.
    script = "print('up', flush=True); from stagewave.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "jobs", "--url", "http://127.0.0.1:9"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]},
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_ms / 1000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "Traceback" not in said
    assert process.returncode in (130, 3)  # 3 where the command was quicker: no server answers
