"""Step-Audio2 the whole way: API, broker, vLLM on a CPU, Token2Wav and object store."""

from __future__ import annotations

import io
import threading
import time

import httpx
import numpy as np
import psutil
import pytest
import soundfile

from tests.integration.conftest import System
from tests.integration.step_audio2.conftest import SLOW_START_S
from tests.unit.audio.recordings import sndfile, speech

SAMPLES_A_TOKEN = 960
HEADER_BYTES = 44
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
    assert events.index("event: text") < events.index('"stage":"token2wav"')
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
