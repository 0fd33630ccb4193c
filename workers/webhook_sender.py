"""Sends one webhook once, signed as the Standard Webhooks specification says. No schedule in here."""

from __future__ import annotations

import base64
import binascii
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from standardwebhooks import Webhook

from stage_pipeline.errors import StagewaveError
from workers.net_guard import guarded_client
from workers.settings import Settings

SECRET_PREFIX = "whsec_"  # noqa: S105  # how a secret begins, and not one
SECRET_BYTES = (24, 64)
"""Least and most, by the specification."""
RETRY_AFTER_LIMIT_S = 3600.0
"""A receiver may ask for patience, but not end the schedule by it."""
ANSWER_BYTES = 64 * 1024
"""Of an answer this much is read, and thrown away: a receiver that is cut off may log a failure."""
GONE = 410


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """How one try went. ``error`` is public; None when ``ok``."""

    ok: bool
    status: int | None
    retry_after_s: float | None
    error: str | None
    elapsed_ms: float
    gone: bool = False
    """The receiver wants no more of it, or no other try can end otherwise."""

    @classmethod
    def given_up(cls, error: str) -> SendOutcome:
        """Nothing was sent, and nothing ever can be."""
        return cls(ok=False, status=None, retry_after_s=None, error=error, elapsed_ms=0.0, gone=True)


def send_webhook(
    settings: Settings, *, url: str, message_id: str, body: bytes, secret: str, now: float
) -> SendOutcome:
    """POST ``body`` (JSON) to ``url``; over within ``webhook_timeout_s``, whatever the receiver does.

    ``message_id`` and ``body`` are the same in every try of one webhook; ``now`` (Unix seconds) is not.
    Raises nothing: whatever happens is an outcome. A redirect is a failure.
    """
    if not is_webhook_secret(secret):
        return SendOutcome.given_up("the signing secret cannot be used")
    started = time.monotonic()
    status, retry_after, error = None, None, None
    try:
        with guarded_client(settings, timeout_s=settings.webhook_timeout_s) as client:
            headers = _headers(message_id, body, secret, now)
            with client.stream("POST", url, content=body, headers=headers) as answer:
                status = answer.status_code
                retry_after = answer.headers.get("Retry-After")
                _read_off(answer)
    except StagewaveError as refused:
        error = refused.message
    except httpx.TimeoutException:
        error = f"no answer within {settings.webhook_timeout_s:g} s"
    except (httpx.TransportError, httpx.InvalidURL):
        error = "the connection failed"
    ok = status is not None and 200 <= status < 300
    if status is not None:
        error = None if ok else _fault(status)
    return SendOutcome(
        ok=ok,
        status=status,
        retry_after_s=_retry_after_s(retry_after, now) if status in (429, 503) else None,
        error=error,
        elapsed_ms=(time.monotonic() - started) * 1000,
        gone=status == GONE,
    )


def is_webhook_secret(text: str) -> bool:
    """``whsec_`` and base64 of 24 to 64 bytes."""
    if not text.startswith(SECRET_PREFIX):
        return False
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]


def _headers(message_id: str, body: bytes, secret: str, now: float) -> dict[str, str]:
    moment = datetime.fromtimestamp(now, UTC)
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": Webhook(secret).sign(message_id, moment, body.decode()),
    }


def _read_off(answer: httpx.Response) -> None:
    """The status has been said: how the rest comes, or whether, changes nothing."""
    size = 0
    try:
        for block in answer.iter_raw():
            size += len(block)
            if size >= ANSWER_BYTES:
                return
    except (httpx.TimeoutException, httpx.TransportError):
        return


def _fault(status: int) -> str:
    if 300 <= status < 400:
        return f"the receiver answered {status}: redirects are not followed"
    return f"the receiver answered {status}"


def _retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds, or an HTTP date (RFC 9110, section 10.2.3)."""
    if header is None:
        return None
    text = header.strip()
    if text.isdecimal():
        wait_s = float(text[:9])
    else:
        try:
            wait_s = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(wait_s, 0.0), RETRY_AFTER_LIMIT_S)
