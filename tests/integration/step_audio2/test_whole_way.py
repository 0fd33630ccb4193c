"""Step-Audio2 the whole way: API, broker, vLLM on a CPU, Token2Wav and object store."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator

import httpx
import numpy as np
import psutil
import pytest
import soundfile

from tests.integration.conftest import System
from tests.integration.step_audio2.conftest import SLOW_START_S
from tests.unit.audio.recordings import READING_HZ, reading, similarity, sndfile, speech
from workers.janitor import Janitor
from workers.voice import prompt_key, voice_prefix

SAMPLES_A_TOKEN = 960
HEADER_BYTES = 44
PROMPT_S = 6
PROMPT = reading()[READING_HZ : (1 + PROMPT_S) * READING_HZ]
# How far apart two samples are, of 32,767: what is voiced beside others is rounded otherwise.
ROUNDING, OTHER_VOICE = 4, 400
pytestmark = pytest.mark.timeout(2 * SLOW_START_S)


def post(client: httpx.Client, kind: str, **fields: object) -> str:
    """The path of a new job."""
    if kind == "tts":
        answer = client.post("/v1/jobs", json={"type": kind, **fields})
    else:
        form = {"type": kind, **{name: str(value) for name, value in fields.items()}}
        answer = client.post("/v1/jobs", data=form, files={"file": ("a.wav", sndfile(speech()))})
    assert answer.status_code == 201, answer.text
    return f"/v1/jobs/{answer.json()['id']}"


def ended(client: httpx.Client, path: str) -> dict:
    deadline = time.monotonic() + 120
    while (job := client.get(path, params={"wait": 30}).json())["status"] in ("queued", "running"):
        assert time.monotonic() < deadline, job
    return job


def succeeded(client: httpx.Client, path: str) -> dict:
    job = ended(client, path)
    assert job["status"] == "succeeded", job["error"]
    return job


def ready(client: httpx.Client, name: str) -> dict:
    """The record of a voice that is prepared."""
    deadline = time.monotonic() + 60
    while (voice := client.get(f"/v1/voices/{name}").json())["status"] == "preparing":
        assert time.monotonic() < deadline, voice
        time.sleep(0.05)
    assert voice["status"] == "ready", voice
    return voice


def tokens(count: int) -> list[dict]:
    """An answer of exactly so many tokens, of whatever kind."""
    return [{"min_tokens": count, "max_tokens": count}]


def lives(process: psutil.Process) -> bool:
    """Not so a zombie: its new parent may be none that buries it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def samples(client: httpx.Client, path: str) -> np.ndarray:
    wave, rate = soundfile.read(io.BytesIO(client.get(f"{path}/audio").content), dtype="int16")
    assert rate == 24_000
    return wave


def test_every_task_takes_the_whole_way_in_both_modes(client: httpx.Client) -> None:
    heard = post(client, "asr")
    spoken = {
        (kind, mode): post(client, kind, mode=mode, **extra)
        for kind, extra in (
            ("tts", {"text": "Hello there.", "sampling_params_list": tokens(120)}),
            ("s2st", {"target_language": "zh"}),
        )
        for mode in ("sequential", "async_chunk")
    }

    transcript = succeeded(client, heard)
    assert transcript["result"]["text"]
    assert transcript["usage"]["text_tokens"] >= len(transcript["result"]["text"])
    assert client.get(f"{heard}/transcript").json()["text"] == transcript["result"]["text"]

    made = {way: succeeded(client, path) for way, path in spoken.items()}
    for way, path in spoken.items():
        count = made[way]["usage"]["audio_tokens"]
        wave = samples(client, path)
        assert count > 0 and len(wave) == SAMPLES_A_TOKEN * count, way
        assert wave.any(), way
    for kind in ("tts", "s2st"):
        # Streamed or whole, it is the same answer, so it is as long.
        whole, streamed = made[kind, "sequential"], made[kind, "async_chunk"]
        assert whole["usage"] == streamed["usage"]
        assert whole["result"]["text"] == streamed["result"]["text"]
    assert made["tts", "sequential"]["result"]["finish_reason"] == "length"
    assert made["s2st", "sequential"]["result"]["text"]


def test_text_is_told_while_audio_is_made(client: httpx.Client) -> None:
    path = post(client, "s2st", mode="async_chunk")
    done = succeeded(client, path)
    events = client.get(f"{path}/events").text
    told = [block for block in events.split("\n\n") if "event: text" in block]
    assert len(told) > 1
    assert events.index("event: text") < events.index("event: first_audio")
    assert done["result"]["text"]


def test_a_listener_hears_what_is_stored(client: httpx.Client) -> None:
    path = post(client, "tts", text="Listen.", live=True, sampling_params_list=tokens(100))
    heard = client.get(f"{path}/audio").content[HEADER_BYTES:]
    done = succeeded(client, path)
    assert heard == client.get(f"{path}/audio").content[HEADER_BYTES:]
    assert len(heard) == 2 * SAMPLES_A_TOKEN * done["usage"]["audio_tokens"]


def test_an_answer_without_audio_is_no_empty_wave(client: httpx.Client) -> None:
    # The first token is a letter.
    failed = ended(client, post(client, "tts", text="Hello.", sampling_params_list=[{"max_tokens": 1}]))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "no_audio")
    assert failed["attempts"] == {"thinker": 1}


def test_what_was_spoken_when_the_thinker_was_killed_is_not_made_again(
    speaking: System, client: httpx.Client
) -> None:
    asked = {"text": "Going on.", "mode": "async_chunk", "sampling_params_list": tokens(400)}
    undisturbed = post(client, "tts", **asked)
    expected = succeeded(client, undisturbed)

    path = post(client, "tts", **asked)
    job_id = path.rpartition("/")[2]
    heard: list[bytes] = []

    def listen() -> None:
        # Nothing comes while the Thinker starts again.
        heard.append(client.get(f"{path}/audio", timeout=SLOW_START_S).content)

    listener = threading.Thread(target=listen)
    listener.start()
    chunks = speaking.backend.tokens.chunks
    speaking.wait_until(lambda: len(chunks(job_id)) >= 2, "some tokens are handed on", 60)
    engine = psutil.Process(speaking.pid("thinker")).children(recursive=True)
    speaking.kill("thinker")
    before = chunks(job_id)
    assert not before[-1].final
    # A killed process takes its engine with it, or the next one would find the GPU taken.
    speaking.wait_until(lambda: not any(map(lives, engine)), "the engine is gone too", 10)

    speaking.start("thinker")
    done = succeeded(client, path)
    listener.join(timeout=30)
    assert done["attempts"]["thinker"] == 2
    assert done["usage"] == expected["usage"]
    assert done["result"]["text"] == expected["result"]["text"]
    assert np.array_equal(samples(client, path), samples(client, undisturbed))
    assert heard[0][HEADER_BYTES:] == client.get(f"{path}/audio").content[HEADER_BYTES:]
    made = chunks(job_id)
    assert made[: len(before)] == before or not made  # gone with the job's end


def apart(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one.astype(int) - other).max())


@pytest.fixture(scope="module")
def reader(speaking: System) -> Iterator[dict]:
    """The voice of a real person, ready."""
    with httpx.Client(base_url=speaking.url, timeout=90) as client:
        form = {"data": {"name": "Reader"}, "files": {"file": ("a.wav", sndfile(PROMPT, READING_HZ))}}
        made = client.post("/v1/voices", **form)
        assert made.status_code == 201, made.text
        yield ready(client, "Reader")
        client.delete("/v1/voices/Reader")


def test_a_voice_made_of_real_speech_is_the_one_that_speaks(client: httpx.Client, reader: dict) -> None:
    assert reader["duration_s"] == PROMPT_S and reader["warnings"] == []
    assert [voice["name"] for voice in client.get("/v1/voices").json()["data"]] == ["default", "Reader"]
    kept = client.get("/v1/voices/Reader/preview").content
    wave, rate_hz = soundfile.read(io.BytesIO(kept), dtype="float32")
    assert (len(wave), rate_hz) == (PROMPT_S * 24_000, 24_000)
    assert similarity(wave, PROMPT[::2]) > 0.999

    asked = {"text": "In another voice.", "seed": 5, "sampling_params_list": tokens(120)}
    ways = {
        ("tts", mode, voice): post(client, "tts", mode=mode, voice=voice, **asked)
        for mode in ("sequential", "async_chunk")
        for voice in ("default", "Reader")
    }
    ways |= {
        ("s2st", "", voice): post(client, "s2st", voice=voice, seed=5) for voice in ("default", "Reader")
    }
    done = {way: succeeded(client, path) for way, path in ways.items()}
    heard = {way: samples(client, path) for way, path in ways.items()}
    for (kind, mode, voice), job in done.items():
        wave = heard[kind, mode, voice]
        assert job["options"]["voice"] == voice
        assert len(wave) == SAMPLES_A_TOKEN * job["usage"]["audio_tokens"] > 0
        assert wave.any()
        plain = kind, mode, "default"
        assert job["usage"] == done[plain]["usage"]
        assert voice == "default" or apart(wave, heard[plain]) > OTHER_VOICE


def test_a_prepared_voice_outlives_its_worker_and_a_deleted_one_its_name(
    speaking: System, client: httpx.Client, reader: dict
) -> None:
    asked = {"text": "Later.", "seed": 7, "sampling_params_list": tokens(120)}
    before = post(client, "tts", voice="Reader", **asked)
    succeeded(client, before)
    backend = speaking.backend
    speaking.kill("token2wav")
    waiting = [post(client, "tts", voice=voice, **asked) for voice in ("default", "Reader")]
    repeated = post(client, "s2st", voice="Reader")

    def handed_on(path: str) -> tuple[int, ...] | None:
        chunks = backend.tokens.chunks(path.rpartition("/")[2])
        return sum((chunk.tokens for chunk in chunks), ()) if chunks and chunks[-1].final else None

    paths = (*waiting, repeated)
    speaking.wait_until(lambda: all(map(handed_on, paths)), "the Thinker has made them all", 60)
    said = [handed_on(path) for path in waiting]
    assert said[0] == said[1], "only the voice is another"
    # There is nothing left that it could be prepared from, and nobody else can ask for it.
    backend.objects.delete(prompt_key(reader["id"]))
    assert client.delete("/v1/voices/Reader").status_code == 204
    assert client.get("/v1/voices/Reader").status_code == 404
    refused = client.post("/v1/jobs", json={"type": "tts", "voice": "Reader", **asked})
    assert (refused.status_code, refused.json()["code"]) == (422, "voice_unknown")

    speaking.start("token2wav")
    for path in paths:
        job = succeeded(client, path)
        assert len(samples(client, path)) == SAMPLES_A_TOKEN * job["usage"]["audio_tokens"] > 0
    plain, after = (samples(client, path) for path in waiting)
    assert apart(after, samples(client, before)) <= ROUNDING
    assert apart(after, plain) > OTHER_VOICE
    assert backend.voices.get(reader["id"]).tries == 1
    Janitor(backend).sweep(time.time(), grace_s=0)
    assert list(backend.objects.list(voice_prefix(reader["id"]))) == []
    assert not backend.voices.exists(reader["id"])
