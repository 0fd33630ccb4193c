"""What the server refuses, in the form that OpenAI's clients read; and only on their paths."""

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import openai as openai_package
import pytest
from openai import OpenAI

from tests.integration.api.conftest import Api, Servers, multipart_body, problem_of
from tests.integration.conftest import System, free_port
from tests.integration.openai.conftest import error_of, wait_for_job

SPEECH = {"input": "Good morning."}


@pytest.fixture
def hurried(noop: System, tmp_path: Path) -> Iterator[Api]:
    """A second server before the same pools, whose jobs must end within a second."""
    made = Api(replace(noop.settings, port=free_port(), job_deadline_s=1.0), tmp_path)
    yield made
    made.discard()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/audio/nope", 404, "not_found"),
        ("POST", "/v1/chat/nope", 404, "not_found"),
        ("GET", "/v1/audio/speech", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/noop", 405, "method_not_allowed"),
        ("POST", "/v1/audio/speech", 415, "unsupported_media_type"),
        ("POST", "/v1/audio/transcriptions", 415, "unsupported_media_type"),
        ("POST", "/v1/chat/completions", 415, "unsupported_media_type"),
    ],
)
def test_errors_of_the_framework_have_the_form_too(http: httpx.Client, method, path, status, code):
    answer = http.request(method, path)
    assert error_of(answer) == (status, code, None)
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.headers["X-Request-Id"] and answer.headers["x-should-retry"] == "false"
    if status == 405:
        assert answer.headers["Allow"]


def test_the_other_paths_answer_problems_as_before(http: httpx.Client):
    for path in ("/v1/nope", "/v1/jobs/nope", "/v1/audio", "/v1/modelsx"):
        assert problem_of(http.get(path)) == (404, "not_found")


def test_bodies_that_cannot_be_read_or_are_too_large_are_refused(http: httpx.Client):
    json_type = {"Content-Type": "application/json"}
    for body, code in (
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"input": NaN}', "invalid_json"),
    ):
        answer = http.post("/v1/audio/speech", content=body, headers=json_type)
        assert error_of(answer) == (400, code, None)
    assert error_of(http.post("/v1/audio/transcriptions", **multipart_body(model=b"x" * 600_000)))[0] == 413


def test_a_key_is_needed_when_the_server_has_keys(guarded: Api):
    with pytest.raises(openai_package.AuthenticationError) as caught:
        OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0).models.list()
    assert caught.value.code == "invalid_api_key"
    assert caught.value.response.headers["WWW-Authenticate"] == "Bearer"
    assert OpenAI(base_url=f"{guarded.url}/v1", api_key="secret-1").models.list().data


def test_a_full_queue_is_429_and_says_when_to_come_back(small_queue: Api):
    for _ in range(3):
        small_queue.make()
    answer = small_queue.post("/v1/audio/speech", json=SPEECH)
    assert error_of(answer) == (429, "queue_full", None)
    assert int(answer.headers["Retry-After"]) >= 1 and answer.headers["x-should-retry"] == "true"


def test_without_a_seat_no_job_is_made(crowded: Api):
    answer = crowded.post("/v1/audio/speech", json=SPEECH)
    assert error_of(answer) == (503, "too_many_waiters", None)
    assert int(answer.headers["Retry-After"]) >= 1
    assert len(crowded.get("/v1/jobs").json()["data"]) == 1  # the one that the seat is taken for


def test_a_broker_that_is_away_is_503(api: Api):
    with api.broker_away():
        answer = api.post("/v1/audio/speech", json=SPEECH)
    assert error_of(answer) == (503, "broker_unavailable", None)
    assert int(answer.headers["Retry-After"]) >= 1


def test_a_job_that_does_not_end_by_its_deadline_is_503(hurried: Api):
    answer = hurried.post("/v1/audio/speech", json={"input": "tokens=5000 delay_ms=10"})
    assert error_of(answer) == (503, "deadline_exceeded", None)
    assert int(answer.headers["Retry-After"]) >= 1 and answer.headers["x-job-id"]


@pytest.mark.parametrize("how", [{}, {"stream": True}])
def test_a_job_that_is_canceled_while_it_is_waited_for_is_gone(
    api: Api, later: Callable[..., None], how: dict
):
    later(0.3, lambda: api.backend.jobs.cancel(wait_for_job(api).id))
    answer = api.post("/v1/audio/speech", json={**SPEECH, **how})
    assert error_of(answer) == (410, "gone", None)
    assert api.get(f"/v1/jobs/{answer.headers['x-job-id']}").json()["status"] == "canceled"


def test_a_server_that_stops_tells_those_who_wait(servers: Servers):
    server = servers.start()
    answers: list[httpx.Response] = []

    def ask(how: dict) -> None:
        answers.append(httpx.post(f"{server.url}/v1/audio/speech", json={**SPEECH, **how}, timeout=20))

    askers = [threading.Thread(target=ask, args=[how]) for how in ({}, {"stream_format": "sse"})]
    for asker in askers:
        asker.start()
    wait_for_job(server)
    _until(lambda: len(server.backend.jobs.page()[0]) == 2)
    jobs = server.backend.jobs.page()[0]
    assert server.stop() == 0
    for asker in askers:
        asker.join(10)
    for answer in answers:
        assert error_of(answer) == (503, "too_many_waiters", None)
        assert int(answer.headers["Retry-After"]) >= 1
    assert {server.backend.jobs.get(job.id).status for job in jobs} == {"canceled"}


def test_clients_that_wait_and_go_away_give_back_their_seats_and_end_their_jobs(api: Api):
    body = b'{"input": "Good morning."}'
    head = (
        f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    clients = [socket.create_connection((api.settings.host, api.settings.port)) for _ in range(40)]
    for client in clients:
        client.sendall(head + body)

    def waiters() -> int:
        lines = api.get("/metrics").text.splitlines()
        name = "stagewave_api_waiters "
        return int(float(next(line for line in lines if line.startswith(name)).split()[1]))

    _until(lambda: waiters() == 40)
    assert len(api.get("/v1/jobs?status=queued&limit=100").json()["data"]) == 40
    for client in clients:
        client.close()
    _until(lambda: waiters() == 0)
    assert api.get("/v1/jobs?status=queued").json()["data"] == []


def _until(true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        threading.Event().wait(0.05)
    raise AssertionError("not within 10 s")
