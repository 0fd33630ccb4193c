"""One webhook, sent once, to receivers that behave and misbehave; checked with the public verifier."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.conftest import Handle, Serve
from workers.settings import Settings
from workers.webhook_sender import RETRY_AFTER_LIMIT_S, SendOutcome, is_webhook_secret, send_webhook

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes....").decode()
BODY = json.dumps(
    {"type": "job.succeeded", "data": {"text": "订单 12345 → Köln"}}, ensure_ascii=False
).encode()


class Receiver:
    """Notes what comes in, and answers as it is told."""

    def __init__(self, serve: Serve) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.answer: Handle = status(204)
        self.url = serve(self._handle) + "/hook?a=b"

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append((headers, body))
        self.answer(request)

    def send(self, now: float | None = None, **options: object) -> SendOutcome:
        host = self.url.removeprefix("http://").partition("/")[0]
        settings = Settings(private_hosts=(host,), webhook_timeout_s=float(options.pop("timeout_s", 5.0)))
        return send_webhook(
            settings,
            **{"url": self.url, "message_id": "whd_1", "body": BODY, "secret": SECRET} | options,
            now=time.time() if now is None else now,
        )


def status(code: int, body: bytes = b"", **headers: str) -> Handle:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return handle


@pytest.fixture
def receiver(serve: Serve) -> Iterator[Receiver]:
    yield Receiver(serve)


def test_the_receiver_can_verify_it_with_the_public_library(receiver: Receiver) -> None:
    outcome = receiver.send()
    assert (outcome.ok, outcome.status, outcome.error, outcome.gone) == (True, 204, None, False)
    assert 0 < outcome.elapsed_ms < 5000
    headers, body = receiver.received[0]
    assert body == BODY
    assert headers["content-type"] == "application/json"
    assert Webhook(SECRET).verify(body, headers) == json.loads(BODY)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.replace(b"12345", b"12346"), headers)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + base64.b64encode(b"another secret of 32 bytes......").decode()).verify(
            body, headers
        )


def test_each_try_has_the_same_id_and_bytes_and_a_fresh_signed_timestamp(receiver: Receiver) -> None:
    now = time.time()
    receiver.send(now - 100.9)
    receiver.send(now)
    (first, first_body), (second, second_body) = receiver.received
    assert first["webhook-id"] == second["webhook-id"] == "whd_1"
    assert first_body == second_body
    assert first["webhook-timestamp"] == str(int(now - 100.9))
    assert second["webhook-timestamp"] == str(int(now))
    assert first["webhook-signature"] != second["webhook-signature"]
    Webhook(SECRET).verify(first_body, first)
    Webhook(SECRET).verify(second_body, second)


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_any_2xx_is_success(receiver: Receiver, code: int) -> None:
    receiver.answer = status(code)
    assert receiver.send().ok


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused(receiver: Receiver, serve: Serve, code: int) -> None:
    other = Receiver(serve)
    receiver.answer = status(code, Location=other.url)
    outcome = receiver.send()
    assert (outcome.ok, outcome.status, outcome.gone) == (False, code, False)
    assert "redirect" in (outcome.error or "")
    assert other.received == []


@pytest.mark.parametrize("code", [400, 404, 500, 503])
def test_a_failure_is_told_with_its_status(receiver: Receiver, code: int) -> None:
    receiver.answer = status(code, b"<b>stack trace</b>")
    outcome = receiver.send()
    assert (outcome.ok, outcome.status, outcome.gone) == (False, code, False)
    assert outcome.error == f"the receiver answered {code}"


def test_410_ends_it(receiver: Receiver) -> None:
    receiver.answer = status(410)
    outcome = receiver.send()
    assert (outcome.ok, outcome.gone) == (False, True)


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("code", "header", "expected"),
    [
        (429, "7", 7.0),
        (503, "7", 7.0),
        (429, " 0 ", 0.0),
        (429, "999999999999999999999", RETRY_AFTER_LIMIT_S),
        (429, "Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        (429, "Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        (429, "Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_LIMIT_S),
        (429, "soon", None),
        (429, "-5", None),
        (429, "1.5", None),
        (500, "7", None),
        (200, "7", None),
    ],
)
def test_retry_after_is_respected_within_reason(
    receiver: Receiver, code: int, header: str, expected: float | None
) -> None:
    receiver.answer = status(code, Retry_After=header)
    assert receiver.send(NOW).retry_after_s == expected


def test_a_receiver_that_closes_the_connection_is_a_failure(receiver: Receiver) -> None:
    receiver.answer = lambda request: None
    outcome = receiver.send()
    assert (outcome.ok, outcome.status, outcome.error) == (False, None, "the connection failed")


def test_a_port_where_nobody_listens_is_a_failure(receiver: Receiver) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        receiver.url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        outcome = receiver.send()
    assert (outcome.ok, outcome.status, outcome.error) == (False, None, "the connection failed")


def drip_header(request: BaseHTTPRequestHandler) -> None:
    while True:
        request.wfile.write(b"H")
        time.sleep(0.1)


@pytest.mark.parametrize("handle", [drip_header, lambda request: time.sleep(3)], ids=["header", "silence"])
def test_a_receiver_that_does_not_answer_ends_at_the_deadline(receiver: Receiver, handle: Handle) -> None:
    receiver.answer = handle
    outcome = receiver.send(timeout_s=0.6)
    assert (outcome.ok, outcome.status, outcome.error) == (False, None, "no answer within 0.6 s")
    assert 550 < outcome.elapsed_ms < 1500


def test_a_status_counts_though_its_body_drips_until_the_deadline(receiver: Receiver) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b"x")
            time.sleep(0.1)

    receiver.answer = drip
    outcome = receiver.send(timeout_s=0.6)
    assert outcome.ok
    assert outcome.elapsed_ms < 1500


def test_of_an_endless_answer_only_a_little_is_read(receiver: Receiver) -> None:
    written = []

    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(500)
        request.end_headers()
        while True:
            request.wfile.write(bytes(100_000))
            written.append(100_000)

    receiver.answer = endless
    outcome = receiver.send()
    assert (outcome.status, outcome.ok) == (500, False)
    assert outcome.elapsed_ms < 2000
    assert sum(written) < 20_000_000


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://10.0.0.1/", "file:///x", "http://redis/", "no url", "http://a:b:c/"],
)
def test_an_address_inside_is_an_outcome_and_no_exception(url: str, receiver: Receiver) -> None:
    outcome = receiver.send(url=url)
    assert not outcome.ok
    assert outcome.status is None
    assert outcome.error
    assert receiver.received == []


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_!!!", "secret", "whsec_" + base64.b64encode(b"x" * 23).decode()]
)
def test_a_secret_that_cannot_sign_ends_it_with_nothing_sent(receiver: Receiver, secret: str) -> None:
    outcome = receiver.send(secret=secret)
    assert (outcome.ok, outcome.gone) == (False, True)
    assert receiver.received == []


@pytest.mark.parametrize(
    ("key", "usable"), [(b"x" * 23, False), (b"x" * 24, True), (b"x" * 64, True), (b"x" * 65, False)]
)
def test_secrets_have_the_length_that_the_specification_wants(key: bytes, usable: bool) -> None:
    text = base64.b64encode(key).decode()
    assert is_webhook_secret(f"whsec_{text}") is usable
    assert not is_webhook_secret(text)
    assert not is_webhook_secret(f"whsec_{text} ")
