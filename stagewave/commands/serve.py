"""``stagewave api``, ``worker`` and ``scheduler``: one process each, for machines that run only a part."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from workers.settings import Settings, to_environ


@click.command()
@click.pass_obj
def api(settings: Settings) -> None:
    """Serve the HTTP API alone."""
    _become(settings, "api.server")


@click.command()
@click.option("--stage", type=click.Choice(["thinker", "token2wav", "io"]), required=True)
@click.pass_obj
def worker(settings: Settings, stage: str) -> None:
    """Run one pool of workers alone."""
    _become(settings, "workers.pool", "--stage", stage)


@click.command()
@click.pass_obj
def scheduler(settings: Settings) -> None:
    """Run the scheduler alone; several may run, and one leads."""
    _become(settings, "workers.scheduler")


def _become(settings: Settings, module: str, *arguments: str) -> NoReturn:
    settings.require("redis_url", "s3_endpoint")
    # The same process goes on as the other program: signals reach it, and its exit code is ours.
    os.execve(  # noqa: S606  # our own module
        sys.executable, [sys.executable, "-m", module, *arguments], {**os.environ, **to_environ(settings)}
    )
