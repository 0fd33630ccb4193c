"""Voices over HTTP, before any worker has seen them: what is taken, what is refused, under which names."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from tests.integration.api.conftest import Api, multipart_body, problem_of
from tests.integration.test_voices import recording
from tests.unit.audio.recordings import media
from tests.unit.stage_pipeline.test_voice_prompt import file, speech

HOSTILE = [
    "../../etc/passwd",
    "..",
    ".",
    "/etc/passwd",
    "nul\0",
    "a\r\nSet-Cookie: x=1",
    "x" * 300,
    "😀",
    " ",
]


def post(api: Api, name: str | bytes, data: bytes | None = None, **fields: str) -> httpx.Response:
    sent = recording() if data is None else data
    return api.post("/v1/voices", data={"name": name, **fields}, files={"file": ("a.wav", sent)})


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_be_a_path_is_refused_and_not_repeated(api: Api, name: str):
    answer = post(api, name)
    assert problem_of(answer) == (422, "invalid_request")
    assert answer.json()["field"] == "name"
    assert "passwd" not in answer.text and "set-cookie" not in answer.headers
    assert list(api.backend.objects.list("voices/")) == []


@pytest.mark.parametrize(
    "path", ["..%2f..%2fetc%2fpasswd", "..%2f..", "%2e%2e", "%00", "%ff%fe", "x" * 300, "nobody", "voice_x"]
)
def test_what_is_no_voice_is_not_found_whatever_lies_behind_its_name(api: Api, path: str):
    there, not_there = (f"/v1/voices/{path}{end}" for end in ("", "-and-more"))
    for method in ("GET", "DELETE"):
        answers = [api.request(method, url) for url in (there, not_there)]
        assert [problem_of(answer) for answer in answers] == [(404, "not_found")] * 2
        details = {answer.json()["detail"] for answer in answers}
        assert len(details) == 1, "the same answer"
    assert problem_of(api.get(f"{there}/preview")) == (404, "not_found")
    job = api.post("/v1/jobs", json={"type": "tts", "text": "x", "voice": path[:64]})
    assert problem_of(job) == (422, "voice_unknown")


@pytest.mark.parametrize("name", ["陈小姐", "Zoe\u0308 2", "a.b-c_d"])
def test_names_of_any_script_are_taken_and_found_again(api: Api, name: str):
    made = post(api, name)
    assert made.status_code == 201
    path = made.headers["Location"]
    assert path.isascii() and api.get(path).json() == made.json()
    assert api.get(f"/v1/voices/{quote(name)}").json()["id"] == made.json()["id"]
    assert api.post("/v1/jobs", json={"type": "tts", "text": "x", "voice": name}).status_code == 201
    keys = [item.key for item in api.backend.objects.list("voices/")]
    assert keys == [f"voices/{made.json()['id']}/prompt.wav"]
    header = api.get(f"{path}/preview").headers["Content-Disposition"]
    assert header.isascii() and header.startswith("inline; filename=")


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"", 422, "audio_empty"),
        (b"<html></html>" * 50, 422, "not_audio"),
        (file(speech(1.0)).getvalue(), 422, "audio_too_short"),
        (file(speech(17.5)).getvalue(), 422, "audio_too_long"),
        (file(speech(3) * 0).getvalue(), 422, "audio_silent"),
        (file(speech(3) * 0.01).getvalue(), 422, "audio_too_quiet"),
        (file((speech(3) * 20).clip(-1, 1)).getvalue(), 422, "audio_clipped"),
        (file(speech(3, 8000), 8000).getvalue(), 422, "audio_rate_too_low"),
    ],
    ids=["empty", "html", "short", "long", "silent", "quiet", "clipped", "rate"],
)
def test_a_recording_that_cannot_be_used_says_why_and_leaves_nothing(api: Api, data, status, code):
    answer = post(api, "Anna", data)
    assert problem_of(answer) == (status, code)
    assert answer.json()["field"] == "file"
    assert problem_of(api.get("/v1/voices/Anna")) == (404, "not_found")
    assert list(api.backend.objects.list("voices/")) == []


@pytest.mark.parametrize("form", ["mp3", "m4a", "flac"])
def test_the_usual_formats_are_taken(api: Api, form: str):
    made = post(api, "Anna", media(form))
    assert made.status_code == 201, made.text
    assert made.json()["duration_s"] == pytest.approx(3.0, abs=0.2)


def test_a_form_without_a_name_or_a_file_or_with_more_is_refused(api: Api):
    part = {"file": ("a.wav", recording())}
    assert problem_of(api.post("/v1/voices", files=part)) == (422, "invalid_request")
    assert problem_of(api.post("/v1/voices", **multipart_body(name=b"Anna"))) == (400, "invalid_multipart")
    assert problem_of(post(api, "Anna", speed="2")) == (422, "invalid_request")
    assert problem_of(post(api, "Anna", model="other")) == (422, "model_unknown")
    assert post(api, "Anna", model="noop").status_code == 201
    assert problem_of(api.post("/v1/voices", json={"name": "x"})) == (415, "unsupported_media_type")


@pytest.mark.parametrize("path", ["/v1/voices", "/v1/jobs", "/v1/audio/transcriptions"])
def test_a_field_that_is_no_utf8_is_an_error_and_never_taken_for_other_text(api: Api, path: str):
    body = multipart_body(name="Zoë".encode("latin-1"), language=b"\xff\xfe")
    answer = api.post(path, **body)
    assert answer.status_code == 400
    told = answer.json()
    assert told.get("code", told.get("error", {}).get("code")) == "invalid_multipart"


def test_built_in_voices_are_listed_first_and_stay(api: Api):
    names = ["Anna", "Bert", "Carla"]
    ids = [post(api, name).json()["id"] for name in names]
    page = api.get("/v1/voices?limit=2").json()
    assert [voice["name"] for voice in page["data"]] == ["default", "Carla", "Bert"]
    assert (page["data"][0]["built_in"], page["data"][0]["status"]) == (True, "ready")
    rest = api.get(f"/v1/voices?limit=2&after={page['next_cursor']}")
    assert [voice["id"] for voice in rest.json()["data"]] == [ids[0]]
    assert rest.json()["next_cursor"] is None
    assert problem_of(api.get("/v1/voices?after=../x")) == (422, "invalid_request")
    assert api.get("/v1/voices/default").json() == page["data"][0]
    assert problem_of(api.delete("/v1/voices/default")) == (409, "voice_built_in")
    assert problem_of(api.get("/v1/voices/default/preview")) == (404, "not_found")


def test_the_preview_is_the_recording_in_the_format_that_is_wanted(api: Api):
    assert post(api, "Anna").status_code == 201
    whole = api.get("/v1/voices/Anna/preview")
    assert whole.headers["Content-Type"] == "audio/wav" and whole.content[:4] == b"RIFF"
    assert len(whole.content) == 44 + 2 * 3 * 24_000
    pcm = api.get("/v1/voices/Anna/preview?format=pcm")
    assert pcm.headers["Content-Type"] == "audio/pcm;rate=24000" and pcm.content == whole.content[44:]
    assert api.get("/v1/voices/Anna/preview", headers={"Accept": "audio/mpeg"}).headers["Content-Type"] == (
        "audio/mpeg"
    )
    refused = api.get("/v1/voices/Anna/preview", headers={"Accept": "image/png"})
    assert problem_of(refused) == (406, "not_acceptable")


def test_a_voice_that_could_not_be_prepared_says_so_and_no_job_is_made_with_it(api: Api):
    made = post(api, "Anna").json()
    held = api.backend.voices.claim("token2wav.noop")
    assert held is not None and held.id == made["id"]
    api.backend.voices.settle_failed(held, StagewaveError(ErrorCode.INVALID_REQUEST, "there is no speech"))
    told = api.get("/v1/voices/Anna").json()
    assert told["status"] == "failed" and told["error"]["message"] == "there is no speech"
    answer = api.post("/v1/jobs", json={"type": "tts", "text": "x", "voice": "Anna"})
    assert problem_of(answer) == (422, "voice_failed")
