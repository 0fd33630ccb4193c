"""Voices that clients make, and how speech is given, through the running system."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import soundfile

from stage_pipeline.audio.loudness import LoudnessMeter
from stage_pipeline.engines.noop.token2wav import MADE_LOUDNESS
from tests.integration.conftest import ALL_POOLS, System
from tests.unit.audio.recordings import speech
from workers.janitor import Janitor
from workers.job import Job
from workers.states import Status
from workers.voice import features_key, prompt_key, voice_prefix

RATE_HZ = 24_000


def recording(form: str = "WAV", seconds: float = 3.0) -> bytes:
    """Somebody who speaks."""
    samples = np.tile((speech() * 32767).astype(np.int16), 6)[: int(seconds * 16_000)]
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format=form)
    return file.getvalue()


@pytest.fixture
def client(shared_system: System):
    shared_system.start(*(name for name in (*ALL_POOLS, "api") if not shared_system.runs(name)))
    with httpx.Client(base_url=shared_system.url, timeout=60) as made:
        yield made


def post(client: httpx.Client, name: str, data: bytes | None = None, **fields: str) -> httpx.Response:
    file = recording() if data is None else data
    return client.post("/v1/voices", data={"name": name, **fields}, files={"file": ("a.wav", file)})


def make(client: httpx.Client, name: str, data: bytes | None = None) -> dict:
    """One that is ready."""
    answer = post(client, name, data)
    assert answer.status_code in (200, 201), answer.text
    return wait_ready(client, name)


def wait_ready(client: httpx.Client, name: str) -> dict:
    deadline = time.monotonic() + 20
    while (voice := client.get(f"/v1/voices/{quote(name, safe='')}").json())["status"] == "preparing":
        assert time.monotonic() < deadline, voice
        time.sleep(0.02)
    return voice


def speak(client: httpx.Client, **fields: object) -> dict:
    answer = client.post("/v1/jobs", json={"type": "tts", "text": "tokens=30", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def audio_of(client: httpx.Client, job: dict) -> bytes:
    return client.get(f"/v1/jobs/{job['id']}/audio").raise_for_status().content


def samples_of(client: httpx.Client, job: dict) -> np.ndarray:
    return np.frombuffer(audio_of(client, job)[44:], "<i2").astype(float)


def test_a_voice_is_made_prepared_once_and_spoken_with(client: httpx.Client, shared_system: System):
    answer = post(client, "Anna")
    made = answer.json()
    assert answer.status_code == 201 and answer.headers["Location"] == "/v1/voices/Anna"
    assert made["status"] in ("preparing", "ready") and not made["built_in"] and made["warnings"] == []
    assert made["duration_s"] == pytest.approx(3.0, abs=0.01)
    jobs = [speak(client, voice="Anna") for _ in range(3)]  # whether it is ready or not
    plain = samples_of(client, speak(client))
    for job in jobs:
        assert np.abs(samples_of(client, job) - MADE_LOUDNESS * plain).max() <= 1
        assert client.get(f"/v1/jobs/{job['id']}").json()["options"]["voice"] == "Anna"
    ready = wait_ready(client, "Anna")
    assert ready["status"] == "ready" and ready["error"] is None
    assert shared_system.backend.voices.get(ready["id"]).tries == 1
    objects = shared_system.backend.objects
    assert {item.key for item in objects.list(voice_prefix(ready["id"]))} == {
        prompt_key(ready["id"]),
        features_key(ready["id"], "noop"),
    }


def test_the_next_worker_reads_what_is_prepared_and_prepares_what_is_not(
    client: httpx.Client, shared_system: System
):
    objects, voices = shared_system.backend.objects, shared_system.backend.voices
    before, moved = make(client, "Bert"), make(client, "Berta")
    objects.delete(features_key(moved["id"], "noop"))  # as if another checkpoint had prepared it
    shared_system.kill("token2wav")
    post(client, "Carla")
    assert client.get("/v1/voices/Carla").json()["status"] == "preparing"
    shared_system.start("token2wav")
    for name in ("Bert", "Berta"):
        assert len(samples_of(client, speak(client, voice=name)))
    assert voices.get(before["id"]).tries == voices.get(moved["id"]).tries == 1
    assert objects.size(features_key(moved["id"], "noop")) == 32
    assert wait_ready(client, "Carla")["status"] == "ready"


def test_the_same_recording_is_the_same_voice_and_another_is_a_conflict(client: httpx.Client):
    first = make(client, "Dora")
    for form in ("WAV", "FLAC"):
        again = post(client, "Dora", recording(form))
        assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = post(client, "Dora", recording(seconds=4))
    assert (other.status_code, other.json()["code"], other.json()["field"]) == (409, "voice_exists", "name")
    for name in ("default", "slow"):
        own = post(client, name)
        assert (own.status_code, own.json()["code"]) == (409, "voice_exists")
    with ThreadPoolExecutor(8) as many:
        raced = list(many.map(lambda _: post(client, "Race"), range(8)))
    assert len({answer.json()["id"] for answer in raced}) == 1
    assert sorted(answer.status_code for answer in raced) == [200] * 7 + [201]


def test_a_deleted_voice_keeps_the_jobs_that_were_made_with_it(client: httpx.Client, shared_system: System):
    voice = make(client, "Emil")
    plain = samples_of(client, speak(client, text="tokens=60"))
    running = speak(client, voice="Emil", text="tokens=60 delay_ms=20", live=True)
    deadline = time.monotonic() + 10
    while client.get(f"/v1/jobs/{running['id']}").json()["status"] == "queued":
        assert time.monotonic() < deadline
    shared_system.kill("thinker")
    queued = speak(client, voice="Emil", text="tokens=60")
    assert client.delete("/v1/voices/Emil").status_code == 204
    assert client.delete("/v1/voices/Emil").status_code == 404
    refused = client.post("/v1/jobs", json={"type": "tts", "text": "x", "voice": "Emil"})
    assert (refused.status_code, refused.json()["code"]) == (422, "voice_unknown")
    shared_system.start("thinker")
    Janitor(shared_system.backend).sweep(time.time(), grace_s=0)
    for job in (queued, running):
        heard = samples_of(client, job)
        assert np.abs(heard - MADE_LOUDNESS * plain).max() <= 1
        assert shared_system.wait_end(job["id"]).status is Status.SUCCEEDED
    Janitor(shared_system.backend).sweep(time.time(), grace_s=0)
    assert list(shared_system.backend.objects.list(voice_prefix(voice["id"]))) == []
    assert not shared_system.backend.voices.exists(voice["id"])


def test_a_voice_that_no_job_uses_is_gone_at_once(client: httpx.Client, shared_system: System):
    voice = make(client, "Fritz")
    # Its audio is heard to the end before it ends.
    shared_system.wait_success(speak(client, voice="Fritz")["id"])
    assert client.delete("/v1/voices/Fritz").status_code == 204
    assert list(shared_system.backend.objects.list(voice_prefix(voice["id"]))) == []
    assert not shared_system.backend.voices.exists(voice["id"])
    assert make(client, "Fritz", recording(seconds=5))["id"] != voice["id"]


# -- how speech is given -----------------------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 48_000])
def test_speech_is_given_at_the_rate_asked_for(client: httpx.Client, shared_system: System, rate_hz):
    whole = speak(client, sample_rate_hz=rate_hz)
    done = shared_system.wait_success(whole["id"])
    audio = done.result["audio"]
    assert (audio["sample_rate_hz"], audio["duration_s"]) == (rate_hz, 1.2)
    heard, found_hz = soundfile.read(io.BytesIO(audio_of(client, whole)))
    assert found_hz == rate_hz and len(heard) == pytest.approx(1.2 * rate_hz, abs=1)
    live = speak(client, sample_rate_hz=rate_hz, text="tokens=30 delay_ms=10", live=True)
    assert audio_of(client, live)[44:] == stored(shared_system, live)[44:] == audio_of(client, whole)[44:]


def test_speech_is_brought_to_a_loudness_whole_and_live(client: httpx.Client, shared_system: System):
    def loudness(wav: bytes) -> float:
        return LoudnessMeter(RATE_HZ).feed(wav[44:])[-1]

    text = "tokens=150"
    plain = loudness(audio_of(client, speak(client, text=text)))
    assert abs(plain - -23) > 3
    whole = speak(client, text=text, loudness=-23)
    shared_system.wait_success(whole["id"])
    assert loudness(audio_of(client, whole)) == pytest.approx(-23, abs=0.2)
    live = speak(client, text=f"{text} delay_ms=2", loudness=-23, live=True)
    heard = audio_of(client, live)
    assert len(heard) == 44 + 2 * 150 * 960
    assert abs(loudness(heard) - -23) < abs(plain - -23) / 2
    assert heard[44:] == stored(shared_system, live)[44:], "what was heard is what is kept"


def stored(system: System, job: dict) -> bytes:
    done: Job = system.wait_success(job["id"])
    return system.audio(done)


def test_the_format_is_negotiated_unless_it_is_named(client: httpx.Client, shared_system: System):
    job = speak(client)
    path = f"/v1/jobs/{job['id']}/audio"

    def kind(accept: str, query: str = "") -> str:
        answer = client.get(path + query, headers={"Accept": accept})
        assert answer.headers.get("Vary") == "Accept" or answer.status_code == 406
        return answer.headers["Content-Type"]

    assert kind("audio/ogg") == "audio/ogg; codecs=opus", "live"
    shared_system.wait_success(job["id"])
    assert kind("audio/mpeg") == "audio/mpeg"
    assert kind("audio/mpeg, */*") == "audio/wav"
    assert kind("audio/mpeg", "?format=flac") == "audio/flac"
    assert kind("text/html") == "application/problem+json"
    assert client.get(path, headers={"Accept": "text/html"}).json()["code"] == "not_acceptable"

    def spoken(accept: str, **fields: str) -> str:
        body = {"input": "tokens=5", **fields}
        return client.post("/v1/audio/speech", json=body, headers={"Accept": accept}).headers[
            "Content-Type"
        ]

    assert spoken("audio/flac") == "audio/flac"
    assert spoken("application/json") == spoken("application/octet-stream") == spoken("*/*") == "audio/wav"
    assert spoken("audio/flac", response_format="mp3") == "audio/mpeg"


def test_speech_over_openais_path_has_the_same_options(client: httpx.Client, shared_system: System):
    make(client, "Gerda")
    body = {"input": "tokens=30", "voice": "Gerda", "sample_rate_hz": 16_000, "loudness": -30}
    answer = client.post("/v1/audio/speech", json=body)
    heard, rate_hz = soundfile.read(io.BytesIO(answer.content))
    assert (rate_hz, len(heard)) == (16_000, pytest.approx(19_200, abs=1))
    spec = shared_system.job(answer.headers["x-job-id"]).spec
    assert (spec.voice, spec.sample_rate_hz, spec.loudness) == ("Gerda", 16_000, -30)
