"""Everything that goes wrong is a problem in one form."""

import socket
import time

import httpx
import pytest

from tests.integration.api.conftest import TTS, Api, problem_of


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/nope", 404, "not_found"),
        ("GET", "/v1/jobs/../../etc/passwd", 404, "not_found"),
        ("GET", "/docs/../server.py", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("TRACE", "/v1/jobs", 405, "method_not_allowed"),
        ("POST", "/v1/jobs", 415, "unsupported_media_type"),
    ],
)
def test_errors_of_the_framework_are_problems_too(api: Api, method, path, status, code):
    answer = api.request(method, path)
    assert problem_of(answer) == (status, code)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if status == 405:
        assert answer.headers["Allow"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n", 400),
        (b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 10_000 + b"\r\n\r\n", 431),
        (
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
    ],
    ids=["no HTTP", "bad header", "long path", "long header", "bad chunk"],
)
def test_what_is_no_http_is_answered_as_a_problem_and_shows_none_of_it(api: Api, data, status):
    with socket.create_connection((api.settings.host, api.settings.port), timeout=5) as client:
        client.sendall(data)
        answer = b"".join(iter(lambda: client.recv(65536), b"")) if status != 400 else client.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"application/problem+json" in head
    assert b"xxxx" not in body and b"Bad Header" not in body


def test_an_id_of_the_request_is_given_back_or_made(api: Api):
    assert api.get("/healthz", headers={"X-Request-Id": "abc-1"}).headers["X-Request-Id"] == "abc-1"
    for hostile in ("a b", "x" * 65, "<script>"):
        made = api.get("/nope", headers={"X-Request-Id": hostile})
        assert made.headers["X-Request-Id"].startswith("req_")
        assert made.json()["request_id"] == made.headers["X-Request-Id"]


def test_a_key_is_needed_under_v1_when_the_server_has_keys(guarded: Api):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret-1"}):
        answer = guarded.get("/v1/jobs", headers=headers)
        assert problem_of(answer) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert guarded.get("/v1/nope").status_code == 401
    for key in ("secret-1", "secret-2"):
        assert guarded.get("/v1/jobs", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    for path in ("/healthz", "/metrics", "/openapi.json", "/docs"):
        assert guarded.get(path).status_code == 200


def test_nothing_of_a_request_is_in_the_log_but_its_route(api: Api):
    api.get("/v1/jobs/secret-path?secret-query=1", headers={"User-Agent": "secret-agent"})
    api.post("/v1/jobs", json={**TTS, "voice": "secret-voice", "text": "secret text"})
    time.sleep(0.1)
    assert "secret" not in api.log()
    assert '"route": "/v1/jobs/<job_id>"' in api.log()
    assert "Traceback" not in api.log()


def test_a_broker_that_is_away_is_503_within_three_seconds(api: Api):
    job = api.make()
    with api.broker_away():
        for method, path, body in (
            ("POST", "/v1/jobs", TTS),
            ("GET", f"/v1/jobs/{job['id']}", None),
            ("GET", f"/v1/jobs/{job['id']}/events", None),
        ):
            began = time.monotonic()
            answer = api.request(method, path, json=body)
            assert problem_of(answer) == (503, "broker_unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
            assert time.monotonic() - began < 3
    assert api.get(f"/v1/jobs/{job['id']}").status_code == 200


def test_a_body_that_never_comes_holds_nobody_up(api: Api):
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 100\r\n\r\n{"
    clients = [socket.create_connection((api.settings.host, api.settings.port)) for _ in range(50)]
    try:
        for client in clients:
            client.sendall(head)
        began = time.monotonic()
        assert httpx.get(f"{api.url}/healthz").status_code == 200
        assert time.monotonic() - began < 1
    finally:
        for client in clients:
            client.close()
