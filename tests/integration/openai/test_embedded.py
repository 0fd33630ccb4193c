"""OpenAI's own client before the engine that is shipped: it speaks, hears what it said, and repeats it."""

import base64
import io
import re
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import httpx
import jiwer
import numpy as np
import pytest
import soundfile
from openai import OpenAI

from stage_pipeline.audio.loudness import LoudnessMeter
from tests.integration.conftest import System
from tests.integration.openai.conftest import client_of
from tests.unit.audio.recordings import READING_HZ, parted, reading, sndfile

TEXT = "Good morning. The train to the coast leaves at nine, and the ferry waits for it."
BECKETT = "ever tried ever failed no matter try again fail again fail better"


def plain(text: str) -> str:
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def wrong(said: str, heard: str) -> float:
    """Share of the words that were misheard."""
    return float(jiwer.wer(plain(said), plain(heard)))


@pytest.fixture(scope="module")
def client(embedded: System) -> Iterator[OpenAI]:
    with client_of(embedded) as made:
        yield made


@pytest.fixture(scope="module")
def beckett() -> bytes:
    """10 seconds of a person."""
    return (resources.files("moonshine_voice") / "assets" / "beckett.wav").read_bytes()


@pytest.fixture(scope="module")
def spoken(client: OpenAI) -> bytes:
    return client.audio.speech.create(
        model="gpt-4o-mini-tts", voice="default", input=TEXT, response_format="flac"
    ).content


def test_speech_is_streamed_to_a_file(client: OpenAI, tmp_path: Path):
    path = tmp_path / "speech.wav"
    with client.audio.speech.with_streaming_response.create(
        model="embedded", voice="default", input=TEXT * 4, response_format="wav"
    ) as answer:
        began = time.monotonic()
        first_s = None
        with path.open("wb") as file:
            for block in answer.iter_bytes():
                first_s = first_s or time.monotonic() - began
                file.write(block)
        whole_s = time.monotonic() - began
    assert first_s < whole_s / 2
    samples, rate_hz = soundfile.read(path)
    assert len(samples) / rate_hz > 12 and abs(samples).max() > 0.1


def test_a_person_is_transcribed_with_times(client: OpenAI, beckett: bytes):
    heard = client.audio.transcriptions.create(
        model="embedded",
        file=("beckett.wav", beckett),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert heard.language == "en" and 8 < heard.duration < 12
    assert wrong(BECKETT, heard.text) <= 0.1
    assert [segment.id for segment in heard.segments] == list(range(len(heard.segments)))
    assert wrong(BECKETT, " ".join(word.word for word in heard.words)) <= 0.1
    times = [moment for word in heard.words for moment in (word.start, word.end)]
    assert times == sorted(times) and times[-1] <= heard.duration


def test_speech_given_whole_is_understood_by_a_streamed_transcription(client: OpenAI, spoken: bytes):
    assert spoken[:4] == b"fLaC"
    *deltas, done = client.audio.transcriptions.create(
        model="whisper-1", file=("said.flac", spoken), stream=True
    )
    assert "".join(delta.delta for delta in deltas) == done.text
    assert wrong(TEXT, done.text) < 0.1 and done.usage.input_tokens > 0


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by OpenAI; its users still have it
def test_a_translation_into_english_is_given(client: OpenAI, spoken: bytes):
    answer = client.audio.translations.create(
        model="whisper-1", file=("said.flac", spoken), response_format="json"
    )
    assert wrong(TEXT, answer.text) < 0.1, answer.text


def test_a_chat_speaks(client: OpenAI):
    said = client.chat.completions.create(
        model="embedded",
        messages=[
            {"role": "user", "content": "Hello there."},
            {"role": "assistant", "content": "<tts_start>"},
        ],
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )
    (choice,) = said.choices
    assert choice.message.content == "Hello there."
    samples, rate_hz = soundfile.read(io.BytesIO(base64.b64decode(choice.message.audio.data)))
    assert 0.4 < len(samples) / rate_hz < 3


def test_a_chat_repeats_what_it_hears_while_it_is_streamed(client: OpenAI, spoken: bytes):
    data = base64.b64encode(spoken).decode()
    stream = client.chat.completions.create(
        model="embedded",
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "pcm16"},
        messages=[
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}],
            }
        ],
        stream=True,
    )
    text, sizes = "", []
    for chunk in stream:
        delta = chunk.choices[0].delta.model_dump()
        text += delta["content"] or ""
        if sent := (delta.get("audio") or {}).get("data"):
            sizes.append(len(base64.b64decode(sent)))
    assert wrong(TEXT, text) < 0.1
    assert len(sizes) > 3 and sum(sizes) / 2 / 22_050 > 3
    assert stream.response.headers["x-job-id"].startswith("job_")


def test_speech_is_slower_and_faster_as_asked_and_says_the_same(client: OpenAI, spoken: bytes):
    own, rate_hz = soundfile.read(io.BytesIO(spoken))
    for speed in (0.75, 1.5):
        said = client.audio.speech.create(
            model="tts-1", voice="default", input=TEXT, speed=speed, response_format="flac"
        ).content
        heard, _ = soundfile.read(io.BytesIO(said))
        assert len(heard) * speed == pytest.approx(len(own), rel=0.12)
        text = client.audio.transcriptions.create(model="whisper-1", file=("a.flac", said)).text
        assert wrong(TEXT, text) <= 0.1


def test_a_voice_cannot_be_made_of_a_recording_here(embedded: System, beckett: bytes):
    files = {"file": ("a.wav", beckett)}
    answer = httpx.post(f"{embedded.url}/v1/voices", data={"name": "Anna"}, files=files)
    assert (answer.status_code, answer.json()["code"]) == (422, "voice_unsupported")
    listed = httpx.get(f"{embedded.url}/v1/voices").json()["data"]
    assert [(voice["name"], voice["built_in"]) for voice in listed] == [("default", True)]


def test_speech_has_the_loudness_that_was_asked_for(client: OpenAI):
    how = {"model": "tts-1", "voice": "default", "input": TEXT, "response_format": "pcm"}
    for streamed in (False, True):
        for target in (-23, -16):
            extra = {"loudness": target, "sample_rate_hz": 24_000, "stream": streamed}
            pcm = client.audio.speech.create(**how, extra_body=extra).content
            heard = LoudnessMeter(24_000).feed(pcm)[-1]
            assert heard == pytest.approx(target, abs=1.0 if streamed else 0.3)


CLAUSES = (
    "it was the best of times it was the worst of times",
    "it was the epoch of belief",
    "it was the epoch of incredulity",
    "it was the spring of hope it was the winter of despair",
    "in short the period was so far like the present period",
)


@pytest.mark.parametrize(("speed", "late"), [(1.0, ()), (0.7, (1, 4))])
def test_a_dubbed_recording_is_spoken_at_its_own_times(
    embedded: System, speed: float, late: tuple[int, ...]
):
    source, begins_s = parted(reading(), READING_HZ, (0.5, 1.5, 3.0, 0.5, 2.0))
    with httpx.Client(base_url=embedded.url, timeout=60) as http:
        form = {"type": "s2st", "keep_timing": "true", "speed": str(speed)}
        files = {"file": ("film.wav", sndfile(source, READING_HZ))}
        made = http.post("/v1/jobs", data=form, files=files).raise_for_status()
        path = f"/v1/jobs/{made.json()['id']}"
        while (job := http.get(path, params={"wait": 30}).json())["status"] in ("queued", "running"):
            pass
        assert job["status"] == "succeeded", job["error"]
        audio = http.get(f"{path}/audio").content
        transcript = http.get(f"{path}/transcript").json()
        cues = http.get(f"{path}/transcript", params={"format": "srt"}).text

    segments = transcript["segments"]
    for clause, segment in zip(CLAUSES, segments, strict=True):
        assert wrong(clause, segment["text"]) <= 0.2
    starts_s = [segment["start_s"] for segment in segments]
    assert starts_s == pytest.approx(begins_s, abs=0.05)
    shown = re.findall(r"^(\d\d):(\d\d):(\d\d),(\d{3}) -->", cues, re.M)
    assert [int(h) * 3600 + int(m) * 60 + int(s) + int(ms) / 1000 for h, m, s, ms in shown] == starts_s

    heard, rate_hz = soundfile.read(io.BytesIO(audio), dtype="float32")
    seconds = len(source) / READING_HZ
    assert len(heard) / rate_hz > seconds - 0.001
    assert late or len(heard) / rate_hz == pytest.approx(seconds, abs=0.001)
    loud_s = np.flatnonzero(np.abs(heard) > 0.01) / rate_hz
    for index in late:  # what was said before it took longer than there was room
        assert (np.abs(loud_s - begins_s[index]) < 0.02).any()
    for index in (0, 3) if late else range(5):
        begin_s = begins_s[index]
        assert not ((loud_s > begin_s - 0.1) & (loud_s < begin_s - 0.01)).any()
        # The voice begins with a breath of 30 ms.
        assert loud_s[loud_s > begin_s][0] < begin_s + 0.09
    assert transcript["duration_s"] == pytest.approx(seconds, abs=0.001)
