"""Webhooks are taken from Stagewave and nobody else."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from stagewave import WebhookInvalid, verify_webhook

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
BODY = (
    '{"type": "job.succeeded", "timestamp": "2026-01-01T00:00:00Z", "data": {"id": "job_1", "text": "é"}}'
)


def signed(body: str = BODY, *, ago: timedelta = timedelta(), secret: str = SECRET) -> dict[str, str]:
    moment = datetime.now(UTC) - ago
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(moment.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("msg_1", moment, body),
    }


def test_a_signed_webhook_is_read() -> None:
    for payload in (BODY, BODY.encode()):
        event = verify_webhook(payload, signed(), SECRET)

        assert (event.id, event.type, event.data["id"]) == ("msg_1", "job.succeeded", "job_1")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY + " ", signed()),
        (BODY, signed(ago=timedelta(hours=1))),
        (BODY, signed(ago=timedelta(hours=-1))),
        (BODY, signed(secret="whsec_" + base64.b64encode(b"x" * 24).decode())),
        (BODY, {}),
        (BODY, signed() | {"Webhook-Signature": "nonsense"}),
        (BODY, signed() | {"Webhook-Signature": "v1,=?"}),
        (BODY, signed() | {"Webhook-Timestamp": "soon"}),
        ("[]", signed("[]")),
        ("{}", signed("{}")),
        (b"\xff", signed()),
    ],
)
def test_what_was_not_signed_so_is_refused(body: str | bytes, headers: dict[str, str]) -> None:
    with pytest.raises(WebhookInvalid):
        verify_webhook(body, headers, SECRET)


def test_a_secret_that_is_none_is_the_callers_fault() -> None:
    with pytest.raises(ValueError, match="whsec_"):
        verify_webhook(BODY, signed(), "")
