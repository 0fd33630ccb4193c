"""What every subcommand that talks to a server shares: its options and its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from stagewave.client import AsyncClient, Client
from workers.settings import Settings

Command = TypeVar("Command", bound=Callable[..., object])

PATIENCE_S = 2.0
"""A person at a terminal would rather be told that there is no server."""


def server_options(command: Command) -> Command:
    """``--url`` and ``--api-key``; without them, the server that the settings describe."""
    command = click.option("--url", metavar="URL", help="The server; by default the one on this machine.")(
        command
    )
    return click.option("--api-key", metavar="KEY", help="Sent as a bearer token.")(command)


def connect(settings: Settings, url: str | None, api_key: str | None) -> Client:
    """A client of the server that was named, or of our own."""
    return Client(url or local_url(settings), api_key=_key(settings, api_key), patience_s=PATIENCE_S)


def connect_async(
    settings: Settings, url: str | None, api_key: str | None, patience_s: float
) -> AsyncClient:
    """``connect``, for asyncio and work that takes its time."""
    return AsyncClient(url or local_url(settings), api_key=_key(settings, api_key), patience_s=patience_s)


def _key(settings: Settings, api_key: str | None) -> str | None:
    return settings.api_keys[0] if api_key is None and settings.api_keys else api_key


def local_url(settings: Settings) -> str:
    """Where ``stagewave up`` with these settings serves."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  # compared only
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
