"""Both clients against the real system, and against servers and networks that fail."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from stagewave import ApiError, AsyncClient, Client, ClientError, Job, NotFound, Unreachable
from tests.conftest import Serve
from tests.integration.client.conftest import SAMPLES_A_TOKEN, clip
from tests.integration.conftest import System

WAV_HEADER = 44


def spoken_bytes(tokens: int) -> int:
    return WAV_HEADER + 2 * SAMPLES_A_TOKEN * tokens


def test_a_job_is_made_waited_for_heard_and_deleted(client: Client) -> None:
    job = client.wait(client.submit("tts", text="tokens=10", metadata={"a": [1]}).id)

    assert job.succeeded and job.record["metadata"] == {"a": [1]}
    assert len(client.audio(job.id)) == len(b"".join(client.listen(job.id))) == spoken_bytes(10)
    assert client.audio(job.id, format="flac")[:4] == b"fLaC"
    client.delete(job.id)
    client.delete(job.id)
    with pytest.raises(NotFound):
        client.get(job.id)


def test_audio_is_a_file_bytes_or_a_url(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "会议\n.wav"
    path.write_bytes(clip())

    made = [client.submit("asr", audio=audio, word_timestamps=True) for audio in (path, clip())]

    for job in made:
        assert client.wait(job.id).record["options"]["word_timestamps"] is True
        for form in ("text", "json", "srt", "vtt"):
            assert client.transcript(job.id, format=form)
    with pytest.raises(ApiError) as refusal:
        client.submit("asr", audio="http://127.0.0.1/a.wav")
    assert (refusal.value.code, refusal.value.field) == ("url_not_allowed", "audio_url")


def test_the_same_key_makes_one_job_and_no_key_makes_two(client: Client) -> None:
    def ids(key: str | None) -> set[str]:
        return {client.submit("tts", text="tokens=1", idempotency_key=key).id for _ in range(2)}

    assert (len(ids("once")), len(ids(None))) == (1, 2)


def test_a_listener_hears_a_job_while_it_is_made(client: Client) -> None:
    job = client.submit("tts", text="tokens=100 delay_ms=10", live=True)

    pieces = client.listen(job.id, format="pcm")
    first = next(pieces)

    assert not client.get(job.id).finished
    assert len(first) + sum(map(len, pieces)) == 2 * SAMPLES_A_TOKEN * 100


def test_events_come_once_each_and_resume(client: Client) -> None:
    job = client.submit("tts", text="tokens=10")

    events = list(client.events(job.id))

    assert events[-1].name == "succeeded" and len({event.id for event in events}) == len(events)
    assert list(client.events(job.id, after=events[1].id)) == events[2:]
    assert list(client.events(job.id, after=events[-1].id)) == []


def test_pages_are_walked_to_the_last_job(client: Client) -> None:
    made = [client.submit("tts", text="tokens=1").id for _ in range(7)]

    walked = [job.id for job in client.jobs(type="tts", limit=3)]

    assert walked[:7] == made[::-1] and len(walked) == len(set(walked))
    page = client.jobs_page(limit=3)
    assert [job.id for job in page.items] == walked[:3] and page.next_cursor == walked[2]
    assert [job.id for job in client.jobs(after=walked[2], type="tts")] == walked[3:]


def test_canceling_ends_a_job(client: Client) -> None:
    job = client.submit("tts", text="tokens=3000 delay_ms=20")

    assert client.cancel(job.id).status == client.cancel(job.id).status == "canceled"
    assert client.wait(job.id).status == "canceled"


def test_waiting_ends_at_its_timeout(client: Client) -> None:
    job = client.submit("tts", text="tokens=3000 delay_ms=20")
    began = time.monotonic()

    assert not client.wait(job.id, timeout_s=1).finished
    assert not client.get(job.id, wait_s=0.5).finished
    assert 1.5 <= time.monotonic() - began < 6
    client.cancel(job.id)


def test_a_batch_is_made_of_requests_as_they_come(client: Client) -> None:
    requests = ({"type": "tts", "text": f"tokens={n}", "custom_id": f"line-{n}"} for n in (1, 0, 3))

    batch = client.batches.wait(client.batch(requests, metadata={"a": 1}).id)

    assert batch.status == "completed" and batch.counts["total"] == 3
    done = {line.custom_id: line.body["status"] for line in client.batches.output(batch.id)}
    assert done["line-1"] == done["line-3"] == "succeeded"
    assert batch.id in {listed.id for listed in client.batches.list(limit=1)}


def test_a_batchs_wrong_lines_are_told_of_and_the_same_key_makes_one(
    client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"type": "tts", "text": "tokens=1"}\n{"type": "tts"\n')

    first, second = (client.batch(path, idempotency_key="batch-1") for _ in range(2))
    batch = client.batches.wait(first.id)

    assert first.id == second.id
    (wrong,) = client.batches.errors(batch.id)
    assert wrong.line == 2 and wrong.error is not None and wrong.error["code"] == "invalid_json"
    again = client.batches.wait(client.batches.resume(batch.id, only="failed").id)
    assert again.record["resumes"] == batch.id
    with pytest.raises(ApiError):
        client.batches.cancel(batch.id)


def test_the_servers_voices_are_listed(client: Client) -> None:
    voices = list(client.voices.list(limit=1))

    assert {"default", "slow"} <= {voice.name for voice in voices}
    assert client.voices.get("default").status == "ready"
    with pytest.raises(NotFound):
        client.voices.delete("nobody")


def test_the_client_for_asyncio_does_the_same(served: System, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(clip())

    async def use(client: AsyncClient) -> None:
        made = await asyncio.gather(*(client.submit("tts", text=f"tokens={n + 1}") for n in range(20)))
        ended = await asyncio.gather(*(client.wait(job.id) for job in made))
        assert all(job.succeeded for job in ended)
        assert len(await client.audio(made[4].id)) == spoken_bytes(5)
        assert sum([len(piece) async for piece in client.listen(made[4].id)]) == spoken_bytes(5)
        heard = await client.wait((await client.submit("asr", audio=path)).id)
        assert await client.transcript(heard.id, format="srt")
        events = [event.name async for event in client.events(heard.id)]
        assert events[-1] == "succeeded"
        listed = [job.id async for job in client.jobs(type="tts", limit=7)]
        assert set(listed[:20]) == {job.id for job in made}
        assert (await client.jobs_page(limit=1)).next_cursor
        long = await client.submit("tts", text="tokens=3000 delay_ms=20")
        assert (await client.cancel(long.id)).status == "canceled"
        await client.delete(long.id)
        with pytest.raises(NotFound):
            await client.get(long.id, wait_s=1)
        batch = await client.batch([{"type": "tts", "text": "tokens=1"}])
        assert (await client.batches.wait(batch.id)).status == "completed"
        assert [line.line async for line in client.batches.output(batch.id)] == [1]
        assert [line async for line in client.batches.errors(batch.id)] == []
        assert batch.id in [listed.id async for listed in client.batches.list()]
        assert "default" in [voice.name async for voice in client.voices.list()]
        assert (await client.ready())["status"] == "ready"

    async def main() -> None:
        async with AsyncClient(served.url, patience_s=5) as client:
            await use(client)

    asyncio.run(main())


def test_threads_share_a_client(client: Client) -> None:
    made: list[Job] = []
    threads = [
        threading.Thread(target=lambda: made.append(client.wait(client.submit("tts", text="tokens=1").id)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len({job.id for job in made if job.succeeded}) == 8


class Flaky:
    """Cuts off the first request, refuses the second, and answers the third; remembers them all."""

    def __init__(self, record: bytes) -> None:
        self.keys: list[str | None] = []
        self.bodies: list[bytes] = []
        self._record = record

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        self.keys.append(request.headers["Idempotency-Key"])
        self.bodies.append(request.rfile.read(int(request.headers["Content-Length"])))
        if len(self.keys) == 1:
            request.connection.close()
            return
        status = 503 if len(self.keys) == 2 else 201
        request.send_response(status)
        body = b'{"code": "broker_unavailable", "detail": "away"}' if status == 503 else self._record
        request.send_header("Retry-After", "1")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def test_a_post_whose_connection_broke_is_the_same_post_again(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(clip())
    record = json.dumps({"id": "job_1", "status": "queued"}).encode()
    plain, on_asyncio = Flaky(record), Flaky(record)
    began = time.monotonic()

    with Client(serve(plain)) as client:
        assert client.submit("asr", audio=path).id == "job_1"
    took = time.monotonic() - began

    async def submit() -> Job:
        async with AsyncClient(serve(on_asyncio)) as client:
            return await client.submit("asr", audio=path)

    assert asyncio.run(submit()).id == "job_1"
    assert took >= 1  # as the server asked
    for server in (plain, on_asyncio):
        assert len(server.keys) == 3 and len(set(server.keys)) == 1 and server.keys[0]
        assert all(clip() in body for body in server.bodies)  # the file whole, each time


def test_audio_that_breaks_off_is_not_taken_for_whole(serve: Serve) -> None:
    def half(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"x" * 500)

    with Client(serve(half)) as client, pytest.raises(Unreachable):
        list(client.listen("job_1"))


def test_events_go_on_over_connections_that_break(serve: Serve) -> None:
    asked: list[str | None] = []

    def two_at_a_time(request: BaseHTTPRequestHandler) -> None:
        after = request.headers["Last-Event-ID"]
        asked.append(after)
        number = int(after or 0)
        request.send_response(200)
        request.end_headers()
        for n in (number + 1, number + 2):
            name = "succeeded" if n == 6 else "text"
            request.wfile.write(f"id: {n}\nevent: {name}\ndata: {{}}\n\nid: 99\nevent: te".encode())
            request.wfile.write(b"" if n == 6 else b"xt\n\n")

    with Client(serve(two_at_a_time)) as client:
        assert [event.id for event in client.events("job_1")] == ["1", "2", "3", "4", "5", "6"]
    assert asked == [None, "2", "4"]


def test_no_server_and_no_url_are_told_apart() -> None:
    with (
        Client("http://127.0.0.1:9", patience_s=0) as client,
        pytest.raises(Unreachable, match="no Stagewave"),
    ):
        client.get("job_1")
    for url in ("nonsense", "ftp://example.com", "http://[::1"):
        with pytest.raises(ClientError, match="no http"), Client(url) as client:
            client.get("job_1")
