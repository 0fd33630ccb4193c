import pytest

from tests.integration.api.conftest import Api, problem_of, tone_wav


def test_a_transcript_comes_in_every_form(api: Api):
    job = api.make_asr(tone_wav(0.1))
    path = f"/v1/jobs/{job['id']}/transcript"
    waiting = api.get(path)
    assert problem_of(waiting) == (409, "not_ready")
    assert waiting.headers["Retry-After"] == "1"
    api.hand.transcribe(job["id"], "Hello <there> & 会议.")
    assert api.get(f"/v1/jobs/{job['id']}").json()["result"]["transcript_url"] == path
    whole = api.get(path).json()
    assert (whole["text"], whole["language"]) == ("Hello <there> & 会议.", "en")
    assert whole["segments"][0]["end_s"] == 1.5
    text = api.get(f"{path}?format=text")
    assert (text.text, text.headers["Content-Type"]) == (
        "Hello <there> & 会议.\n",
        "text/plain; charset=utf-8",
    )
    srt = api.get(f"{path}?format=srt").text
    assert srt == "1\n00:00:00,500 --> 00:00:01,500\nHello <there> & 会议.\n\n"
    vtt = api.get(f"{path}?format=vtt")
    assert vtt.text.startswith("WEBVTT\n\n00:00:00.500 --> 00:00:01.500\n")
    assert vtt.headers["Content-Type"] == "text/vtt; charset=utf-8"


def test_silence_has_an_empty_but_valid_transcript(api: Api):
    job = api.make_asr(tone_wav(0.1))
    api.hand.transcribe(job["id"], "")
    path = f"/v1/jobs/{job['id']}/transcript"
    assert api.get(path).json()["segments"] == []
    assert api.get(f"{path}?format=srt").text == ""
    assert api.get(f"{path}?format=vtt").text.startswith("WEBVTT")


@pytest.mark.parametrize("form", ["docx", "", "SRT"])
def test_a_form_that_there_is_not_is_refused(api: Api, form):
    answer = api.get(f"/v1/jobs/{api.make()['id']}/transcript?format={form}")
    assert (problem_of(answer), answer.json()["field"]) == ((422, "invalid_request"), "format")


def test_a_spoken_job_has_no_transcript(api: Api):
    job = api.make()
    api.hand.speak(job["id"])
    assert problem_of(api.get(f"/v1/jobs/{job['id']}/transcript")) == (404, "not_found")
