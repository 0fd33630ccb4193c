"""Two hundred clients that wait or listen, and the one that wants a quick answer."""

import json
import socket
import time
from functools import partial

import httpx

from tests.integration.api.conftest import Api, pcm_tone, problem_of


def ask(api: Api, path: str) -> socket.socket:
    """A request whose answer is not waited for."""
    client = socket.create_connection((api.settings.host, api.settings.port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return client


def quick(api: Api) -> float:
    """How long a fresh client waits for a small answer, in seconds."""
    began = time.monotonic()
    assert httpx.get(f"{api.url}/v1/jobs?limit=1", timeout=10).status_code == 200
    return time.monotonic() - began


def hang(api: Api, job_id: str, count: int) -> list[socket.socket]:
    """So many clients: a third each waits, follows events, and listens."""
    kinds = ("?wait=60", "/events", "/audio")
    return [ask(api, f"/v1/jobs/{job_id}{kinds[number % 3]}") for number in range(count)]


def seats(api: Api) -> int:
    lines = api.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("stagewave_api_waiters ")).split()[1]))


def wait_for_seats(api: Api, count: int) -> None:
    deadline = time.monotonic() + 15
    while seats(api) != count:
        assert time.monotonic() < deadline, f"{seats(api)} seats, not {count}"
        time.sleep(0.05)


def test_two_hundred_waiting_clients_do_not_hold_up_the_next_one(fresh_api: Api):
    api = fresh_api
    job = api.make()
    clients = hang(api, job["id"], 201)
    wait_for_seats(api, 201)
    times = sorted(quick(api) for _ in range(20))
    assert times[10] < 0.1 and times[-1] < 1, times
    writing = api.hand.begin_speaking(job["id"])
    writing.write(pcm_tone(0.5))
    writing.finish()
    for number, client in enumerate(clients):
        client.settimeout(10)
        answer = b""
        while b'"succeeded"' not in answer and not (number % 3 == 2 and answer.endswith(b"0\r\n\r\n")):
            block = client.recv(65536)
            assert block, f"client {number} was cut off: {answer[:300]!r}"
            answer += block
        assert answer.startswith(b"HTTP/1.1 200")
        client.close()
    wait_for_seats(api, 0)


def test_a_server_with_two_hundred_waiting_clients_stops_within_seconds_and_tells_them(fresh_api: Api):
    api = fresh_api
    clients = hang(api, api.make()["id"], 200)
    wait_for_seats(api, 200)
    began = time.monotonic()
    assert api.stop() == 0
    assert time.monotonic() - began < 4
    answers = [b"".join(iter(partial(client.recv, 65536), b"")) for client in clients]
    for answer in answers[0::3]:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == "queued"
    for answer in answers[1::3]:
        assert b"event: status" in answer and answer.endswith(b"0\r\n\r\n")
    for answer in answers[2::3]:
        assert answer.startswith(b"HTTP/1.1 409")


def test_clients_that_hang_up_free_their_seats(fresh_api: Api):
    clients = hang(fresh_api, fresh_api.make()["id"], 30)
    wait_for_seats(fresh_api, 30)
    for client in clients:
        client.close()
    wait_for_seats(fresh_api, 0)


def test_beyond_the_limit_a_poll_is_answered_at_once_and_listeners_are_sent_away(few_seats: Api):
    api = few_seats
    job = api.make()
    clients = hang(api, job["id"], 3)
    wait_for_seats(api, 3)
    began = time.monotonic()
    poll = api.get(f"/v1/jobs/{job['id']}?wait=30")
    assert (poll.status_code, poll.json()["status"]) == (200, "queued")
    for path in ("events", "audio"):
        answer = api.get(f"/v1/jobs/{job['id']}/{path}")
        assert problem_of(answer) == (503, "too_many_waiters")
        assert int(answer.headers["Retry-After"]) >= 1
    assert time.monotonic() - began < 1
    for client in clients:
        client.close()
    wait_for_seats(api, 0)
