"""Webhooks, for who receives them: is this one from Stagewave, and what does it say?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from standardwebhooks import Webhook, WebhookVerificationError

from stagewave.errors import WebhookInvalid
from stagewave.record import JsonObject


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """One webhook. ``id`` is the same each time it is sent: act on each id once. ``data`` is the record of
    the job or the batch."""

    id: str
    type: str
    timestamp: str
    data: JsonObject


def verify_webhook(payload: bytes | str, headers: Mapping[str, str], secret: str) -> WebhookEvent:
    """The webhook with this body, exactly as it came, and these headers.

    Raises ``WebhookInvalid`` unless it was signed with ``secret`` (``whsec_…``) in the last five minutes.
    """
    try:
        key = Webhook(secret)
    except Exception as error:  # the library lets many kinds out, of base64 and its own
        raise ValueError("the secret is not whsec_ and base64") from error
    try:
        text = payload if isinstance(payload, str) else payload.decode()
        key.verify(text, dict(headers), json_parse=False)
        told = json.loads(text)
        named = {name.lower(): value for name, value in headers.items()}
        return WebhookEvent(named["webhook-id"], told["type"], told["timestamp"], told["data"])
    except (WebhookVerificationError, ValueError, KeyError, TypeError) as error:
        # ValueError: also a header or a signature of the wrong form.
        raise WebhookInvalid("this webhook was not signed with the secret, or not lately") from error
