"""What every subcommand that talks to a server shares: its options and its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from stagewave.client import Client
from workers.settings import Settings

Command = TypeVar("Command", bound=Callable[..., object])


def server_options(command: Command) -> Command:
    """``--url`` and ``--api-key``; without them, the server that the settings describe."""
    command = click.option("--url", metavar="URL", help="The server; by default the one on this machine.")(
        command
    )
    return click.option("--api-key", metavar="KEY", help="Sent as a bearer token.")(command)


def connect(settings: Settings, url: str | None, api_key: str | None) -> Client:
    """A client of the server that was named, or of our own."""
    if api_key is None and settings.api_keys:
        api_key = settings.api_keys[0]
    return Client(url or local_url(settings), api_key=api_key)


def local_url(settings: Settings) -> str:
    """Where ``stagewave up`` with these settings serves."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  # compared only
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
