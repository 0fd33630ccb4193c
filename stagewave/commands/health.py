"""``stagewave health``: whether a part that runs here is well, for the health checks of containers."""

from __future__ import annotations

import socket

import click

from stage_pipeline.errors import StagewaveError
from stagewave import exits
from stagewave.connection import connect
from stagewave.errors import ClientError, ServiceAway
from workers import keys
from workers.backend import connect_backend
from workers.broker import broker_errors
from workers.settings import Settings


@click.command()
@click.argument("part", type=click.Choice(["api", "all", "scheduler", "thinker", "token2wav", "io"]))
@click.pass_obj
def health(settings: Settings, part: str) -> int:
    """Whether a part that runs on this machine is well: exit code 0, or 1 when it is not.

    A pool is well when it is ready for jobs, the scheduler when one leads, the api when it answers, and all
    when every check of /readyz is passed.
    """
    well = _api_is_well(settings, part) if part in ("api", "all") else _queue_side_is_well(settings, part)
    click.echo("well" if well else "not well")
    return exits.OK if well else exits.FAILED


def _api_is_well(settings: Settings, part: str) -> bool:
    with connect(settings, None, None) as client:
        try:
            readiness = client.ready()
        except ClientError:
            return False
    return part == "api" or bool(readiness["status"] == "ready")


def _queue_side_is_well(settings: Settings, part: str) -> bool:
    backend = connect_backend(settings)
    try:
        if part == "scheduler":
            with broker_errors():
                return bool(backend.client.exists(keys.LEADER))
        workers = backend.pools.workers()
    except StagewaveError as error:
        raise ServiceAway(error.message) from error
    here = socket.gethostname()
    return any(
        worker.stage == part and worker.host == here and worker.state == "ready" for worker in workers
    )
