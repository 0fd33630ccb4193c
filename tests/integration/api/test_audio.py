"""Audio over HTTP: live while a worker makes it, and as a file afterwards."""

import io
import time

import av
import httpx
import numpy as np
import pytest

from stage_pipeline.errors import ErrorCode
from stage_pipeline.messages import AudioChunk
from tests.integration.api.conftest import RATE_HZ, Api, pcm_tone, problem_of, tone_wav
from workers import keys

FORMATS = ("wav", "pcm", "flac", "mp3", "opus")


def samples(data: bytes, form: str) -> np.ndarray:
    """What a player hears; a live wav header names no length, so its samples are read by hand."""
    if form in ("wav", "pcm"):
        return np.frombuffer(data[44 if form == "wav" else 0 :], "<i2")
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray().ravel() for frame in container.decode(audio=0)]
        rate_hz = container.streams.audio[0].rate
    heard = np.concatenate(frames)
    return heard[:: rate_hz // RATE_HZ]


# -- live ------------------------------------------------------------------------------------------


def test_a_listener_hears_the_audio_while_it_is_made(api: Api):
    job = api.make()
    tone = pcm_tone(1.0)
    writing = api.hand.begin_speaking(job["id"])
    writing.write(tone[:9600])
    with api.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "audio/wav")
        assert "Content-Length" not in answer.headers
        heard = b""
        for block in answer.iter_raw():
            heard += block
            if len(heard) == 44 + 9600:
                break
        assert heard[44:] == tone[:9600], "before the rest is made"
    assert api.backend.client.hget(keys.job(job["id"]), "listening") == b"1"


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_can_be_listened_to_live(api: Api, form, later):
    job = api.make()
    tone = pcm_tone(0.5)

    def make() -> None:
        writing = api.hand.begin_speaking(job["id"])
        for start in range(0, len(tone), 4800):
            writing.write(tone[start : start + 4800])
        writing.finish()

    later(0.2, make)
    answer = api.get(f"/v1/jobs/{job['id']}/audio?format={form}")
    assert answer.status_code == 200
    heard = samples(answer.content, form)
    if form in ("wav", "pcm", "flac"):
        assert heard.tobytes() == tone
    else:
        assert len(heard) == pytest.approx(RATE_HZ / 2, rel=0.3)
    if form == "pcm":
        assert answer.headers["Content-Type"] == f"audio/pcm;rate={RATE_HZ}"


def test_a_listener_who_comes_before_the_worker_waits_for_it(api: Api, later):
    job = api.make()
    later(2.5, api.hand.speak, job["id"])
    assert samples(api.get(f"/v1/jobs/{job['id']}/audio").content, "wav").tobytes() == pcm_tone(1.0)


@pytest.mark.parametrize("end", ["fail", "cancel", "delete"])
def test_a_job_that_fails_half_way_cuts_the_stream(api: Api, end):
    job = api.make()
    writing = api.hand.begin_speaking(job["id"])
    writing.write(pcm_tone(0.2))
    heard = b""
    with api.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
        blocks = answer.iter_raw()
        heard += next(blocks)
        if end == "fail":
            api.hand.fail(writing.claim, ErrorCode.TEXT_EMPTY, "enough")
        elif end == "cancel":
            api.post(f"/v1/jobs/{job['id']}/cancel")
        else:
            api.delete(f"/v1/jobs/{job['id']}")
        with pytest.raises(httpx.RemoteProtocolError):
            for block in blocks:
                heard += block
    assert len(heard) >= 44


def test_a_job_that_fails_before_its_first_audio_is_a_problem(api: Api, later):
    job = api.make()
    claim = api.hand.claim(job["id"], "thinker")
    later(0.2, api.hand.fail, claim, ErrorCode.TEXT_EMPTY, "nothing")
    assert problem_of(api.get(f"/v1/jobs/{job['id']}/audio")) == (404, "not_found")


def test_a_job_that_never_streamed_is_given_as_a_file_when_it_is_done(api: Api, later):
    job = api.make()
    claim = api.hand.claim(job["id"], "thinker")
    later(0.2, api.hand.finish, claim, samples=RATE_HZ)
    answer = api.get(f"/v1/jobs/{job['id']}/audio")
    assert (answer.status_code, answer.content) == (200, tone_wav(1.0))
    assert answer.headers["Content-Length"] == str(len(answer.content))


def test_a_listener_too_late_for_the_channel_gets_the_rest_from_the_object_store(api: Api):
    job = api.make()
    writing = api.hand.begin_speaking(job["id"])
    writing.write(pcm_tone(0.5)[:9600])
    with api.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
        blocks = answer.iter_raw()
        heard = next(blocks)
        stray = AudioChunk(99, 1, 999_999, RATE_HZ, b"\0\0").to_bytes()
        api.backend.client.xadd(keys.audio(job["id"]), {"m": stray})
        api.hand.store(writing.claim, pcm_tone(0.5))
        heard += b"".join(blocks)
    assert samples(heard, "wav").tobytes() == pcm_tone(0.5)


def test_head_of_a_running_job_does_not_wait(api: Api):
    began = time.monotonic()
    answer = api.head(f"/v1/jobs/{api.make()['id']}/audio?format=mp3")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "audio/mpeg")
    assert time.monotonic() - began < 1


# -- finished --------------------------------------------------------------------------------------


@pytest.fixture
def spoken(api: Api) -> str:
    job = api.make()
    api.hand.speak(job["id"])
    return f"/v1/jobs/{job['id']}/audio"


def test_finished_audio_is_a_file_with_a_length_and_a_tag(api: Api, spoken):
    whole, head = api.get(spoken), api.head(spoken)
    assert whole.content == tone_wav(1.0)
    for answer in (whole, head):
        assert answer.status_code == 200
        assert answer.headers["Content-Length"] == str(len(whole.content))
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert answer.headers["Content-Type"] == "audio/wav"
        assert answer.headers["ETag"] == whole.headers["ETag"]
    assert head.content == b""
    same = api.get(spoken, headers={"If-None-Match": whole.headers["ETag"]})
    assert (same.status_code, same.content) == (304, b"")


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-43", 0, 44),
        ("bytes=100-", 100, None),
        ("bytes=-10", -10, None),
        ("bytes=0-99999999", 0, None),
    ],
)
def test_a_range_is_given_as_a_part(api: Api, spoken, header, start, stop):
    whole = tone_wav(1.0)
    part = api.get(spoken, headers={"Range": header})
    assert part.status_code == 206
    assert part.content == whole[start:stop]
    first = start % len(whole)
    assert part.headers["Content-Range"] == f"bytes {first}-{first + len(part.content) - 1}/{len(whole)}"
    assert part.headers["Content-Length"] == str(len(part.content))


def test_a_range_of_another_version_gives_the_whole(api: Api, spoken):
    tag = api.head(spoken).headers["ETag"]
    assert api.get(spoken, headers={"Range": "bytes=0-9", "If-Range": tag}).status_code == 206
    assert api.get(spoken, headers={"Range": "bytes=0-9", "If-Range": '"old"'}).status_code == 200
    assert api.get(spoken, headers={"Range": "bytes=0-1,4-5"}).status_code == 200


def test_a_range_outside_the_file_is_416(api: Api, spoken):
    answer = api.get(spoken, headers={"Range": "bytes=99999999-"})
    assert problem_of(answer) == (416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == f"bytes */{len(tone_wav(1.0))}"


@pytest.mark.parametrize("form", FORMATS[1:])
def test_finished_audio_is_given_in_another_format(api: Api, spoken, form):
    answer = api.get(f"{spoken}?format={form}")
    assert answer.status_code == 200
    heard = samples(answer.content, form)
    if form in ("pcm", "flac"):
        assert heard.tobytes() == pcm_tone(1.0)
    else:
        assert len(heard) == pytest.approx(RATE_HZ, rel=0.3)
    assert api.head(f"{spoken}?format={form}").headers["Content-Type"] == answer.headers["Content-Type"]


def test_a_format_that_there_is_not_is_refused(api: Api, spoken):
    assert problem_of(api.get(f"{spoken}?format=aiff")) == (422, "invalid_request")


@pytest.mark.parametrize(
    "name", ["a\r\nSet-Cookie: x=1.wav", "../../etc/passwd", "x" * 300, 'quo"te', "nul\0", "会议记录.wav"]
)
def test_a_name_to_save_it_under_is_no_way_into_the_headers(api: Api, spoken, name):
    answer = api.get(spoken, params={"filename": name})
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    header = answer.headers["Content-Disposition"]
    assert header.startswith("attachment; filename=") and "filename*=UTF-8''" in header
    assert len(header) < 1500 and "/" not in header
    if "会" in name:
        assert "filename*=UTF-8''%E4%BC%9A%E8%AE%AE%E8%AE%B0%E5%BD%95.wav" in header


def test_the_audio_of_an_asr_job_is_not_found(api: Api):
    job = api.make_asr(tone_wav(0.1))
    assert problem_of(api.get(f"/v1/jobs/{job['id']}/audio")) == (404, "not_found")
    api.hand.transcribe(job["id"], "hello")
    assert problem_of(api.get(f"/v1/jobs/{job['id']}/audio")) == (404, "not_found")
