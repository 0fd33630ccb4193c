"""Stagewave's command and Python client."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagewave.client.async_client import AsyncClient
    from stagewave.client.sync_client import Client
    from stagewave.client.webhooks import WebhookEvent, verify_webhook
    from stagewave.errors import ApiError, ClientError, NotFound, Unreachable, WebhookInvalid
    from stagewave.record import Batch, BatchLine, Event, Job, Page, Voice

__all__ = [
    "ApiError",
    "AsyncClient",
    "Batch",
    "BatchLine",
    "Client",
    "ClientError",
    "Event",
    "Job",
    "NotFound",
    "Page",
    "Unreachable",
    "Voice",
    "WebhookEvent",
    "WebhookInvalid",
    "verify_webhook",
]

_MODULES = {
    "AsyncClient": "stagewave.client.async_client",
    "Client": "stagewave.client.sync_client",
    "WebhookEvent": "stagewave.client.webhooks",
    "verify_webhook": "stagewave.client.webhooks",
    **dict.fromkeys(
        ("ApiError", "ClientError", "NotFound", "Unreachable", "WebhookInvalid"), "stagewave.errors"
    ),
    **dict.fromkeys(("Batch", "BatchLine", "Event", "Job", "Page", "Voice"), "stagewave.record"),
}


def __getattr__(name: str) -> object:
    # What a program does not use it does not wait for: httpx alone takes a tenth of a second. And the
    # command ends quietly when it is interrupted while it starts.
    if name not in _MODULES:
        raise AttributeError(f"module 'stagewave' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
