"""``stagewave api``, ``worker`` and ``scheduler``: one process each, for machines that run only a part."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from stagewave.deploy_options import deploy_options
from workers.cannot_start import cannot_start
from workers.settings import Settings, SettingsError, to_environ


@click.command()
@deploy_options
def api(settings: Settings) -> None:
    """Serve the HTTP API alone."""
    _become(settings, "api.server")


@click.command()
@deploy_options
@click.option("--stage", type=click.Choice(["thinker", "token2wav", "io"]), required=True)
@click.option("--devices", help="The GPUs of this process, such as 0,1, instead of the deploy config's.")
def worker(settings: Settings, stage: str, devices: str | None) -> None:
    """Run one process of a pool alone.

    Exit code 78 when it cannot start as it is configured: started again, it would end in the same way.
    """
    chosen = ["--devices", devices] if devices is not None else []
    _become(settings, "workers.pool", "--stage", stage, *chosen)


@click.command()
@deploy_options
def scheduler(settings: Settings) -> None:
    """Run the scheduler alone; several may run, and one leads."""
    _become(settings, "workers.scheduler")


def _become(settings: Settings, module: str, *arguments: str) -> NoReturn:
    try:
        settings.require("redis_url", "s3_endpoint")
    except SettingsError as error:
        cannot_start(error)
    # The same process goes on as the other program: signals reach it, and its exit code is ours.
    os.execve(  # noqa: S606  # our own module
        sys.executable, [sys.executable, "-m", module, *arguments], {**os.environ, **to_environ(settings)}
    )
