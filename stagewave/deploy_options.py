"""What every subcommand that runs a deploy, or a part of one, shares: which deploy it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click

from workers.settings import Settings

Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def deploy_options(
    command: Callable[Concatenate[Settings, Rest], Result],
) -> Callable[..., Result]:
    """``--config`` and ``--model-dir``; the command gets the settings with what they say."""

    @click.option(
        "--config",
        "configs",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A deploy config; several for several models. [default: STAGEWAVE_CONFIG, or embedded]",
    )
    @click.option(
        "--model-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="The folder of the model, for a deploy config that names none. [default: STAGEWAVE_MODEL_DIR]",
    )
    @click.pass_obj
    @wraps(command)
    def with_settings(
        settings: Settings,
        /,
        configs: tuple[Path, ...],
        model_dir: Path | None,
        *rest: Rest.args,
        **named: Rest.kwargs,
    ) -> Result:
        if configs:
            settings = replace(settings, config=configs)
        if model_dir is not None:
            settings = replace(settings, model_dir=model_dir)
        return command(settings, *rest, **named)

    return with_settings
