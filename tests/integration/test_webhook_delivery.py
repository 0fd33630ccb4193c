"""Webhooks reach their receiver, whatever it does first: same id, same bytes, valid signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.integration.conftest import System
from workers.job import Job, WebhookTarget
from workers.settings import Settings
from workers.states import Status

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes....").decode()
ALL = ("job.started", "job.first_audio", "job.succeeded", "job.failed", "job.canceled")

Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def hang(request: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


def close(request: BaseHTTPRequestHandler) -> None:
    request.connection.close()


@dataclass
class Received:
    at: float
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """Answers by its script, then 204 for ever."""

    port: int = 0
    script: list[Answer] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def of(self, event: str) -> list[Received]:
        return [r for r in self.received if json.loads(r.body)["type"] == event]


@pytest.fixture(scope="module")
def server() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.received.append(Received(time.time(), headers, body))
            (made.script.pop(0) if made.script else status(204))(self)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = http.server_address[1]
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield made
    http.shutdown()


@pytest.fixture
def receiver(server: Receiver) -> Receiver:
    """With nothing received and nothing to say yet."""
    server.script.clear()
    server.received.clear()
    return server


@pytest.fixture(scope="module")
def noop_settings(noop_settings: Settings, server: Receiver) -> Settings:
    return replace(
        noop_settings,
        private_hosts=(f"127.0.0.1:{server.port}",),
        webhook_secret=SECRET,
        webhook_retry_s=(0.1,) * 8,
        webhook_timeout_s=1.0,
    )


def hooked(system: System, receiver: Receiver, **options: object) -> Job:
    return system.submit(webhook=WebhookTarget(receiver.url, ALL), **options)


def signature_holds(received: Received) -> bool:
    """Checked from the specification, without the library that signs."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{received.id}.{received.headers['webhook-timestamp']}.".encode() + received.body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    fresh = abs(received.at - int(received.headers["webhook-timestamp"])) < 5
    return fresh and hmac.compare_digest(expected, received.headers["webhook-signature"])


def test_a_receiver_is_told_of_every_step_it_asked_for(running: System, receiver: Receiver) -> None:
    job = hooked(running, receiver)
    running.wait_success(job.id)
    events = {"job.started", "job.first_audio", "job.succeeded"}
    running.wait_until(
        lambda: {json.loads(r.body)["type"] for r in receiver.received} == events, "all told"
    )
    assert all(signature_holds(r) for r in receiver.received)
    assert len({r.id for r in receiver.received}) == len(receiver.received) == 3
    told = json.loads(receiver.of("job.succeeded")[0].body)
    assert told["data"]["id"] == job.id and told["data"]["status"] == "succeeded"


def test_a_receiver_that_fails_in_every_way_gets_it_in_the_end(running: System, receiver: Receiver) -> None:
    receiver.script[:] = [status(500), close, hang, status(429, Retry_After="2"), status(204)]
    job = running.submit(webhook=WebhookTarget(receiver.url, ("job.succeeded",)))
    running.wait_success(job.id)
    running.wait_until(lambda: len(receiver.received) >= 5, "five tries", timeout_s=20)
    time.sleep(1)
    tries = receiver.received
    assert len(tries) == 5, "none after the 204"
    assert len({r.id for r in tries}) == 1
    assert len({r.body for r in tries}) == 1
    assert all(signature_holds(r) for r in tries)
    assert tries[4].at - tries[3].at >= 2, "Retry-After is kept"
    (delivery,) = running.backend.deliveries.of_job(job.id)
    assert (delivery.state, delivery.tries) == ("delivered", 5)
    assert [entry["status"] for entry in delivery.log] == [500, None, None, 429, 204]
    assert running.job(job.id).status is Status.SUCCEEDED


def test_a_receiver_that_is_gone_is_not_asked_again(running: System, receiver: Receiver) -> None:
    receiver.script[:] = [status(410)]
    job = running.submit(webhook=WebhookTarget(receiver.url, ("job.succeeded",)))
    running.wait_until(lambda: _state(running, job) == "failed", "given up")
    assert len(receiver.received) == 1


def test_a_redirect_is_refused(running: System, receiver: Receiver) -> None:
    receiver.script[:] = [status(302, Location=receiver.url + "/elsewhere"), status(204)]
    job = running.submit(webhook=WebhookTarget(receiver.url, ("job.succeeded",)))
    running.wait_until(lambda: _state(running, job) == "delivered", "delivered")
    assert [entry["status"] for entry in running.backend.deliveries.of_job(job.id)[0].log] == [302, 204]


def test_an_address_that_is_not_allowed_is_never_reached(running: System, receiver: Receiver) -> None:
    other = receiver.url.replace(str(receiver.port), "6379")
    job = running.submit(webhook=WebhookTarget(other, ("job.succeeded",)))
    running.wait_success(job.id)
    running.wait_until(lambda: running.backend.deliveries.of_job(job.id)[0].tries > 0, "tried")
    assert running.backend.deliveries.of_job(job.id)[0].log[0]["status"] is None


def test_a_sender_that_is_killed_loses_no_webhook(running: System, receiver: Receiver) -> None:
    receiver.script[:] = [hang]
    job = running.submit(webhook=WebhookTarget(receiver.url, ("job.succeeded",)))
    running.wait_until(lambda: len(receiver.received) == 1, "the first try")
    running.kill("io")
    running.start("io")
    running.wait_until(lambda: _state(running, job) == "delivered", "delivered", timeout_s=30)
    assert len({(r.id, r.body) for r in receiver.received}) == 1


def test_cancel_is_told_too(running: System, receiver: Receiver) -> None:
    job = hooked(running, receiver, text="tokens=900 delay_ms=10")
    running.wait_until(lambda: running.job(job.id).started_at is not None, "it runs")
    running.backend.jobs.cancel(job.id)
    running.wait_until(lambda: len(receiver.of("job.canceled")) == 1, "told")


def test_a_job_deleted_with_a_webhook_pending_tells_only_that(running: System, receiver: Receiver) -> None:
    receiver.script[:] = [status(503, Retry_After="1")]
    job = running.submit(
        text="tokens=3 private words", webhook=WebhookTarget(receiver.url, ("job.succeeded",))
    )
    running.wait_until(lambda: len(receiver.received) == 1, "the first try")
    running.backend.jobs.delete(job.id)
    running.wait_until(lambda: len(receiver.received) == 2, "the second try")
    assert json.loads(receiver.received[1].body)["data"] == {"id": job.id, "deleted": True}
    assert receiver.received[0].id == receiver.received[1].id


def test_a_delivery_can_be_replayed_under_its_old_id(running: System, receiver: Receiver) -> None:
    job = running.submit(webhook=WebhookTarget(receiver.url, ("job.succeeded",)))
    running.wait_until(lambda: _state(running, job) == "delivered", "delivered")
    (delivery,) = running.backend.deliveries.of_job(job.id)
    running.backend.deliveries.replay(job.id, delivery.id)
    running.wait_until(lambda: len(receiver.received) == 2, "replayed")
    first, second = receiver.received
    assert (first.id, first.body) == (second.id, second.body)


def _state(system: System, job: Job) -> str | None:
    found = system.backend.deliveries.of_job(job.id)
    return found[0].state if found else None


def test_many_webhooks_that_fall_due_at_once_go_out_at_once(running: System, receiver: Receiver) -> None:
    jobs = [hooked(running, receiver, text="tokens=900 delay_ms=20") for _ in range(60)]
    for job in jobs:
        running.backend.jobs.cancel(job.id)
    running.wait_until(lambda: len(receiver.of("job.canceled")) == 60, "all are told", timeout_s=10)
