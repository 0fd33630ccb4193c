"""The Python client: ``Client``, and ``AsyncClient`` for asyncio, with all but the I/O shared by both.

Modules named for a noun of the API (``jobs``, ``batches``, ``voices``) say what each call sends and how its
answer is read; ``patience`` says when to try again; ``sync_client`` and ``async_client`` send.
"""

from stagewave.client.async_client import AsyncClient
from stagewave.client.sync_client import Client
from stagewave.client.webhooks import WebhookEvent, verify_webhook

__all__ = ["AsyncClient", "Client", "WebhookEvent", "verify_webhook"]
