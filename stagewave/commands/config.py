"""``stagewave config``: whether a deploy config can be used, and older ones made into ones of today."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from stage_pipeline.deploy import (
    DeployConfig,
    DeployError,
    check_sharing,
    load_deploys,
    parse_deploy,
    read_deploy_file,
)
from stage_pipeline.deploy_conversion import convert as convert_file
from stagewave import exits
from stagewave.errors import WrongConfig
from workers.settings import Settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def config() -> None:
    """Check a deploy config, or convert one of vLLM-Omni's older form."""


@config.command()
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.pass_obj
def check(settings: Settings, files: tuple[Path, ...]) -> int:
    """Say what a deploy config starts, and which of its keys are read over.

    Several are checked as they would run side by side. Exit code 2 when one cannot be used.
    """
    try:
        for path in files:
            found = read_deploy_file(path, settings.model_dir)
            click.echo(f"{path}: {_described(found.deploy)}")
            if found.ignored:
                click.echo(f"  read over: {', '.join(found.ignored)}")
        check_sharing(load_deploys(files, settings.model_dir))
    except DeployError as error:
        raise WrongConfig(str(error)) from error
    return exits.OK


@config.command()
@click.argument("file", type=_FILE)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="[default: stdout]")
def convert(file: Path, out: Path | None) -> int:
    """Make a deploy config of a vLLM-Omni stage config of the older form (stage_args)."""
    try:
        made, dropped = convert_file(file)
    except DeployError as error:
        raise WrongConfig(str(error)) from error
    text = yaml.safe_dump(made, sort_keys=False, allow_unicode=True)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
    click.echo(f"left out, because they mean nothing here: {', '.join(dropped)}", err=True)
    try:
        parse_deploy(made, out or file)
    except DeployError as error:
        raise WrongConfig(f"converted, but there is more to do: {error}") from error
    return exits.OK


def _described(deploy: DeployConfig) -> str:
    tasks = "asr, tts, s2st" if deploy.speaks else "asr"
    lines = [f"model {deploy.model}, engine {deploy.engine}, serves {tasks}"]
    for stage in deploy.stages:
        for devices in stage.processes:
            where = f"GPU {devices}" if devices is not None else "no GPU named"
            jobs = "1 job" if stage.max_num_seqs == 1 else f"{stage.max_num_seqs} jobs"
            lines.append(f"  {stage.name}: {jobs} at a time, {where}")
    return "\n".join(lines)
