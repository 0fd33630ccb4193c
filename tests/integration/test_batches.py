"""Batches on the running system: whole, killed on the way, and beside live work."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from stage_pipeline.stages import Task
from tests.conftest import Serve
from tests.integration.conftest import System, wav
from workers import keys
from workers.batch import Batch, BatchSpec, BatchStatus, line_job_id, new_batch_id
from workers.batch_output import read_output
from workers.books import Books
from workers.job import WebhookTarget

KEY = "uploads/lines"


@pytest.fixture(scope="module")
def noop_settings(noop_settings):
    return replace(noop_settings, private_hosts=("127.0.0.1",))


def submit(running: System, lines: list[dict], **spec: object) -> str:
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    running.backend.objects.put_bytes(KEY, data, "application/jsonl")
    made = BatchSpec(KEY, **spec)
    return running.backend.batches.create(new_batch_id(), made, len(data))[0].id


def wait_end(running: System, batch_id: str, timeout_s: float = 60) -> Batch:
    running.wait_until(
        lambda: running.backend.batches.get(batch_id).status.terminal, "the batch ends", timeout_s
    )
    return running.backend.batches.get(batch_id)


def lines_of(running: System, batch_id: str, kind: str = "output") -> list[dict]:
    batch = running.backend.batches.get(batch_id)
    return [json.loads(line) for line in b"".join(read_output(running.backend, batch, kind)).splitlines()]


def tts(text: str, **more: object) -> dict:
    return {"type": "tts", "text": text, **more}


def test_lines_of_every_kind_come_to_their_end(running: System):
    running.backend.objects.put_bytes("uploads/a.wav", wav(), "audio/wav")
    audio = f"s3://{running.settings.s3_bucket}/uploads/a.wav"

    def openai(name: str, url: str, **body: object) -> dict:
        return {"custom_id": name, "method": "POST", "url": f"/v1/audio/{url}", "body": body}

    batch_id = submit(
        running,
        [
            tts("tokens=3", custom_id="tts"),
            {"custom_id": "asr", "type": "asr", "audio_url": audio},
            openai("speech", "speech", input="tokens=2", response_format="flac"),
            openai("text", "transcriptions", file=audio, response_format="text"),
            openai("json", "transcriptions", file=audio),
            openai("verbose", "transcriptions", file=audio, response_format="verbose_json"),
            openai("srt", "translations", file=audio, response_format="srt"),
            tts("tokens=0", custom_id="silent"),
            {
                "custom_id": "gone",
                "type": "asr",
                "audio_url": f"s3://{running.settings.s3_bucket}/uploads/b",
            },
        ],
    )
    batch = wait_end(running, batch_id)
    assert (batch.status, batch.succeeded, batch.failed) == (BatchStatus.COMPLETED, 7, 2)
    bodies = {line["custom_id"]: line["response"]["body"] for line in lines_of(running, batch_id)}
    assert bodies["tts"]["result"]["audio"]["duration_s"] == 0.12
    assert bodies["speech"]["result"]["audio"]["format"] == "flac"
    assert bodies["asr"]["result"]["text"] == "1.000 seconds"
    assert bodies["text"] == "1.000 seconds\n"
    assert bodies["json"] == {"text": "1.000 seconds", "usage": {"type": "duration", "seconds": 1.0}}
    assert bodies["verbose"]["duration"] == 1.0 and bodies["verbose"]["task"] == "transcribe"
    assert bodies["srt"].startswith("1\n00:00:00,000 --> ")
    errors = {line["custom_id"]: line["error"]["code"] for line in lines_of(running, batch_id, "error")}
    assert errors == {"silent": "no_audio", "gone": "fetch_failed"}
    assert batch.usage["audio_in_s"] == 5.0 and batch.usage["audio_out_s"] == 0.2
    assert batch.usage["audio_tokens"] == 5 and batch.usage["engine_s"] > 0


def test_a_feeder_killed_twice_on_the_way_does_each_line_once(running: System):
    count = 300
    batch_id = submit(running, [tts("tokens=1", custom_id=f"l{n}") for n in range(count)])
    batches = running.backend.batches
    for done in (30, 150):
        running.wait_until(lambda done=done: batches.get(batch_id).ended >= done, f"{done} done", 60)
        running.kill("scheduler")
        assert not batches.get(batch_id).status.terminal, "it was killed too late to show anything"
        running.start("scheduler")
    batch = wait_end(running, batch_id, 90)
    assert (batch.jobs, batch.succeeded, batch.failed) == (count, count, 0)
    assert running.backend.client.zcard(keys.index(f"batch:{batch_id}")) == count
    lines = lines_of(running, batch_id)
    assert [line["custom_id"] for line in lines] == [f"l{n}" for n in range(count)]
    assert {tuple(line["response"]["body"]["attempts"].values()) for line in lines} == {(1, 1)}
    assert Books(running.backend).faults() == []


def test_somebody_who_waits_finds_a_free_slot_however_long_the_batch(running: System):
    batch_id = submit(running, [tts("tokens=10 delay_ms=100") for _ in range(40)], priority=10)
    batches = running.backend.batches
    running.wait_until(lambda: batches.get(batch_id).running >= 7, "the batch fills the pool")
    time.sleep(0.5)
    assert batches.get(batch_id).running == 7, "a batch takes all slots but the last"
    live = running.wait_success(running.submit(Task.TTS, text="tokens=3", priority=-10).id)
    assert live.started_at is not None and live.started_at - live.created_at < 0.5
    assert batches.get(batch_id).outstanding > 20
    batches.cancel(batch_id)
    batch = wait_end(running, batch_id)
    assert batch.status is BatchStatus.CANCELLED and batch.succeeded + batch.canceled == 40


def test_webhooks_of_a_batch_arrive(running: System, serve: Serve):
    heard: list[tuple[str, dict]] = []

    def receive(request) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        heard.append((request.headers["webhook-id"], body))
        request.send_response(204)
        request.end_headers()

    url = serve(receive)
    hook = WebhookTarget(url, ("batch.progress", "batch.completed"), "whsec_" + "QUJD" * 10)
    batch_id = submit(running, [tts("tokens=1") for _ in range(10)], webhook=hook)
    wait_end(running, batch_id)
    running.wait_until(lambda: "batch.completed" in [body["type"] for _, body in heard], "it is told")
    running.wait_until(lambda: len(heard) == len({name for name, _ in heard}) >= 2, "each once")
    [end] = [body for _, body in heard if body["type"] == "batch.completed"]
    assert end["data"]["id"] == batch_id and end["data"]["status"] == "completed"
    assert end["data"]["counts"]["succeeded"] == 10


def test_the_job_of_a_line_is_a_job_like_any_other(running: System):
    batch_id = submit(running, [tts("tokens=1", custom_id="a", metadata={"b": 2})])
    wait_end(running, batch_id)
    job = running.job(line_job_id(batch_id, 1))
    assert job.public()["batch_id"] == batch_id and job.spec.metadata == {"b": 2}
    assert running.backend.jobs.page(batch=batch_id)[0] == [job]
    assert len(running.audio(job)) > 44
