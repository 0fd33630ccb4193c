"""Making jobs over HTTP: what is taken, what is refused, and what is left behind."""

import base64
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.api.conftest import TTS, Api, problem_of, tone_wav
from workers import keys

WAV = tone_wav(0.2)


def test_a_job_is_made_and_its_path_given(api: Api):
    answer = api.post("/v1/jobs", json={**TTS, "metadata": {"ü": [1, None, {"a": 0.5}]}, "priority": 3})
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert re.fullmatch(r"job_[0-9A-HJKMNP-TV-Z]{26}", job["id"])
    assert (job["status"], job["stage"], job["model"], job["mode"]) == ("queued", "thinker", "noop", "auto")
    assert job["input"] == {"text": TTS["text"]}
    assert job["metadata"] == {"ü": [1, None, {"a": 0.5}]}
    assert api.get(answer.headers["Location"]).json() == job


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"[" * 20_000 + b"]" * 20_000, "application/json", 400, "invalid_json"),
        (b'{"seed": ' + b"9" * 5_000 + b"}", "application/json", 400, "invalid_json"),
        (b'{"type":"tts","text":"a","metadata":{"x":NaN}}', "application/json", 400, "invalid_json"),
        (b'{"type":"tts","text":"a","metadata":{"x":Infinity}}', "application/json", 400, "invalid_json"),
        (b'{"type":"tts","type":"asr"}', "application/json", 400, "invalid_json"),
        (b'"tts"', "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_json"),
        (b"null", "application/json", 400, "invalid_json"),
        (b" " * 50_000_000, "application/json", 400, "invalid_json"),
        (b'{"type":"tts","text":"cut', "application/json", 400, "invalid_json"),
        (b'{"type":"tts","text":"\\ud800"}', "application/json", 400, "invalid_json"),
        ('{"type":"tts","text":"é"}'.encode("latin-1"), "application/json", 400, "invalid_json"),
        (b"", "application/json", 400, "invalid_json"),
        (b"{}", "application/json; charset=utf-16", 415, "unsupported_media_type"),
        (b'{"type":"tts","text":"a"}', "text/plain", 415, "unsupported_media_type"),
        (b'{"type":"tts","text":"a"}', "", 415, "unsupported_media_type"),
        (b"type=tts&text=a", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_hostile_json_is_answered_at_once_as_a_problem(api: Api, body, content_type, status, code):
    began = time.monotonic()
    answer = api.post("/v1/jobs", content=body, headers={"Content-Type": content_type})
    assert problem_of(answer) == (status, code)
    # The 50 MB take 0.3 s when nothing else runs, most of it on their way.
    assert time.monotonic() - began < (3 if len(body) > 1_000_000 else 1)


def test_a_body_over_the_limit_is_413_before_it_is_read(api: Api):
    headers = {"Content-Type": "application/json"}
    answer = api.post("/v1/jobs", content=b" " * 65 * 1024 * 1024, headers=headers)
    assert problem_of(answer) == (413, "too_large")
    chunked = api.post("/v1/jobs", content=iter([b" " * 1024 * 1024] * 65), headers=headers)
    assert problem_of(chunked) == (413, "too_large")


def test_after_a_large_body_was_refused_the_client_goes_on_undisturbed(api: Api):
    headers = {"Content-Type": "text/plain"}
    for size in (10, 100_000, 5_000_000) * 3:
        refused = api.post("/v1/jobs", content=b"x" * size, headers=headers)
        assert problem_of(refused)[0] == 415
        assert refused.headers["Connection"] == ("close" if size > 65_536 else "keep-alive")
        assert api.post("/v1/jobs", json=TTS).status_code == 201


def test_a_compressed_body_is_not_taken(api: Api):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert problem_of(api.post("/v1/jobs", content=b"\x1f\x8b", headers=headers))[0] == 415


def test_a_wrong_field_is_named_and_not_repeated(api: Api):
    answer = api.post("/v1/jobs", json={**TTS, "voice": "../../etc/passwd"})
    assert problem_of(answer) == (422, "voice_unknown")
    assert answer.json()["field"] == "voice"
    assert "passwd" not in answer.text
    many = api.post("/v1/jobs", json={**TTS, "priority": 99, "speeed": 1}).json()
    assert {fault["field"] for fault in many["errors"]} == {"priority", "speeed"}


@pytest.mark.parametrize("text", ["", "   ", "?!…", "🎧🎉"])
def test_text_with_nothing_to_say_is_refused_early(api: Api, text):
    assert problem_of(api.post("/v1/jobs", json={"type": "tts", "text": text})) == (422, "text_empty")


# -- audio -----------------------------------------------------------------------------------------


def test_an_upload_lies_in_the_object_store_before_the_job_is_made(api: Api):
    answer = api.post(
        "/v1/jobs", data={"type": "asr", "word_timestamps": "true"}, files={"file": ("会议.wav", WAV)}
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert job["input"] == {"audio": {"kind": "upload", "size_bytes": len(WAV)}}
    assert job["options"]["word_timestamps"] is True
    with api.backend.objects.open(f"inputs/{job['id']}") as stored:
        assert b"".join(stored.iter_chunks()) == WAV


def test_a_large_upload_is_streamed_through(api: Api):
    data = tone_wav(1.0) + bytes(20_000_000)
    job = api.post("/v1/jobs", data={"type": "asr"}, files={"file": ("a.wav", data)}).json()
    assert api.backend.objects.size(f"inputs/{job['id']}") == len(data)


@pytest.mark.parametrize(
    "url",
    [
        "data:audio/wav;base64," + base64.b64encode(WAV).decode(),
        "data:audio/wav," + "".join(f"%{byte:02X}" for byte in WAV),
    ],
    ids=["base64", "percent"],
)
def test_a_data_url_is_an_upload(api: Api, url):
    job = api.post("/v1/jobs", json={"type": "asr", "audio_url": url}).json()
    assert job["input"]["audio"] == {"kind": "upload", "size_bytes": len(WAV)}
    assert api.backend.objects.size(f"inputs/{job['id']}") == len(WAV)


def test_audio_by_url_is_fetched_later_by_the_io_pool(api: Api):
    job = api.post("/v1/jobs", json={"type": "asr", "audio_url": "https://example.com/a.wav"}).json()
    assert (job["stage"], job["input"]["audio"]["kind"]) == ("fetch", "url")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://x/", "ftp://x/", "http://user@127.0.0.1/"])
def test_a_url_of_another_kind_is_refused(api: Api, url):
    answer = api.post("/v1/jobs", json={"type": "asr", "audio_url": url})
    assert problem_of(answer) == (422, "url_not_allowed")
    assert answer.json()["field"] == "audio_url"


def test_a_key_of_the_bucket_gives_the_same_answer_whether_or_not_it_exists(api: Api):
    bucket = api.settings.s3_bucket
    api.backend.objects.put_bytes("uploads/there.wav", WAV, "audio/wav")
    answers = [
        api.post("/v1/jobs", json={"type": "asr", "audio_url": f"s3://{bucket}/uploads/{name}.wav"})
        for name in ("there", "missing")
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    for key in ("inputs/job_1", "uploads/../inputs/x", "../other-tenant/x"):
        answer = api.post("/v1/jobs", json={"type": "asr", "audio_url": f"s3://{bucket}/{key}"})
        assert problem_of(answer) == (422, "url_not_allowed")


def test_an_empty_upload_is_refused_and_nothing_is_stored(api: Api):
    answer = api.post("/v1/jobs", data={"type": "asr"}, files={"file": ("a.wav", b"")})
    assert problem_of(answer) == (422, "audio_empty")
    assert answer.json()["field"] == "file"


@pytest.mark.parametrize(
    "name", ["a\r\nSet-Cookie: x=1.wav", "../../etc/passwd", "x" * 300 + ".wav", 'quo"te.wav', "nul\0.wav"]
)
def test_a_hostile_file_name_goes_nowhere(api: Api, name):
    before = {item.key for item in api.backend.objects.list("inputs/")}
    answer = api.post("/v1/jobs", data={"type": "asr"}, files={"file": (name, WAV)})
    assert answer.status_code == 201
    made = {item.key for item in api.backend.objects.list("inputs/")} - before
    assert made == {f"inputs/{answer.json()['id']}"}
    assert "set-cookie" not in answer.headers


# -- forms -----------------------------------------------------------------------------------------


def multipart(*parts: tuple[str, bytes]) -> dict:
    """A hand-made form: each part is its header lines and its content."""
    body = b"".join(b"--B\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n" for head, data in parts)
    return {"content": body + b"--B--\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=B"}}


TYPE_PART = ('Content-Disposition: form-data; name="type"', b"asr")
FILE_PART = ('Content-Disposition: form-data; name="file"; filename="a.wav"', WAV)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([TYPE_PART], 400),
        ([TYPE_PART, FILE_PART, FILE_PART], 400),
        ([TYPE_PART, ("Content-Disposition: form-data", b"x"), FILE_PART], 400),
        ([TYPE_PART, ('Content-Disposition: form-data; filename="a.wav"', WAV)], 400),
        ([TYPE_PART, ("Content-Type: audio/wav", WAV)], 400),
        ([TYPE_PART, ('Content-Disposition: form-data; name="file"', WAV)], 400),
        ([TYPE_PART, ('Content-Disposition: form-data; name="audio"; filename="a.wav"', WAV)], 400),
        ([TYPE_PART, TYPE_PART, FILE_PART], 400),
        ([TYPE_PART, FILE_PART, ('Content-Disposition: form-data; name="metadata"', b"{nope")], 400),
        ([TYPE_PART, FILE_PART, ('Content-Disposition: form-data; name="speeed"', b"1")], 422),
        ([TYPE_PART, FILE_PART, ('Content-Disposition: form-data; name="language"', b"x" * 600_000)], 413),
        ([("Content-Disposition: form-data; name=a", b"1")] * 200, 413),
    ],
    ids=[
        "no file",
        "two files",
        "part without a name",
        "file without a name",
        "part without a disposition",
        "file without a filename",
        "file under another name",
        "field twice",
        "metadata that is no JSON",
        "unknown field",
        "field of 600 kB",
        "200 parts",
    ],
)
def test_a_broken_form_is_a_problem(api: Api, parts, status):
    assert problem_of(api.post("/v1/jobs", **multipart(*parts)))[0] == status


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"--B\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nabc", "; boundary=B"),
        (b"whatever", ""),
        (b"", "; boundary=B"),
        (b"--B\r\n" + b"x" * 1_000_000, "; boundary=B"),
    ],
    ids=["truncated", "no boundary", "empty", "endless header"],
)
def test_a_form_that_cannot_be_read_is_a_problem(api: Api, content, content_type):
    headers = {"Content-Type": "multipart/form-data" + content_type}
    assert problem_of(api.post("/v1/jobs", content=content, headers=headers))[0] in (400, 413)


def test_json_fields_of_a_form_are_read(api: Api):
    fields = {"type": "asr", "metadata": '{"a": [1]}', "priority": "2", "language": "", "deadline_s": "60"}
    job = api.post("/v1/jobs", data=fields, files={"file": ("a.wav", WAV)}).json()
    assert (job["metadata"], job["priority"], job["options"]["deadline_s"]) == ({"a": [1]}, 2, 60)


def test_text_may_come_as_a_form_too(api: Api):
    parts = [
        ('Content-Disposition: form-data; name="type"', b"tts"),
        ('Content-Disposition: form-data; name="text"', "Grüße".encode()),
    ]
    assert api.post("/v1/jobs", **multipart(*parts)).json()["input"] == {"text": "Grüße"}
    answer = api.post("/v1/jobs", **multipart(*parts, FILE_PART))
    assert (problem_of(answer), answer.json()["field"]) == ((422, "invalid_request"), "file")


# -- Idempotency-Key -------------------------------------------------------------------------------


def test_fifty_requests_at_once_under_one_key_make_one_job(api: Api):
    def send(_: int) -> httpx.Response:
        files = {"file": ("a.wav", WAV)}
        with httpx.Client(base_url=api.url, timeout=30) as client:
            return client.post(
                "/v1/jobs", data={"type": "asr"}, files=files, headers={"Idempotency-Key": "race"}
            )

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(send, range(50)))
    ids = {answer.json()["id"] for answer in answers}
    assert len(ids) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    inputs = {item.key for item in api.backend.objects.list("inputs/")}
    assert inputs & {f"inputs/{job_id}" for job_id in ids}
    jobs = {f"inputs/{job['id']}" for job in api.get("/v1/jobs?limit=100").json()["data"]}
    assert inputs <= jobs, "the uploads of the others are gone again"


def test_another_request_under_the_same_key_is_refused_while_it_runs_and_after(api: Api):
    headers = {"Idempotency-Key": "one"}
    first = api.post("/v1/jobs", json=TTS, headers=headers).json()
    respelt = json.dumps({"seed": 42, **TTS}, indent=2)
    again = api.post("/v1/jobs", content=respelt, headers={**headers, "Content-Type": "application/json"})
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = {**TTS, "text": "Something else."}
    assert problem_of(api.post("/v1/jobs", json=other, headers=headers)) == (422, "idempotency_mismatch")
    api.hand.speak(first["id"])
    assert problem_of(api.post("/v1/jobs", json=other, headers=headers)) == (422, "idempotency_mismatch")
    after = api.post("/v1/jobs", json=TTS, headers=headers)
    assert (after.status_code, after.json()["id"], after.json()["status"]) == (
        200,
        first["id"],
        "succeeded",
    )


def test_a_key_whose_job_was_deleted_makes_no_second_one(api: Api):
    files, headers = {"file": ("a.wav", WAV)}, {"Idempotency-Key": "gone"}
    job = api.post("/v1/jobs", data={"type": "asr"}, files=files, headers=headers).json()
    api.delete(f"/v1/jobs/{job['id']}")
    for _ in range(2):
        answer = api.post("/v1/jobs", data={"type": "asr"}, files=files, headers=headers)
        assert problem_of(answer) == (410, "gone")
        api.backend.client.delete(keys.job(job["id"]))  # the tombstone runs out
    assert not list(api.backend.objects.list("inputs/"))


def test_a_broker_out_of_memory_is_503_and_nothing_is_half_made(api: Api):
    limit = api.backend.client.config_get("maxmemory")["maxmemory"]
    api.backend.client.config_set("maxmemory", 1)
    try:
        began = time.monotonic()
        answer = api.post("/v1/jobs", data={"type": "asr"}, files={"file": ("a.wav", WAV)})
        assert problem_of(answer) == (503, "broker_unavailable")
        assert int(answer.headers["Retry-After"]) >= 1 and time.monotonic() - began < 3
    finally:
        api.backend.client.config_set("maxmemory", limit)
    assert api.get("/v1/jobs").json()["data"] == []
    assert not list(api.backend.objects.list("inputs/"))


def test_another_file_under_the_same_key_is_another_request(api: Api):
    headers = {"Idempotency-Key": "file"}
    data = {"type": "asr"}
    first = api.post("/v1/jobs", data=data, files={"file": ("a.wav", WAV)}, headers=headers).json()
    same = api.post("/v1/jobs", data=data, files={"file": ("b.wav", WAV)}, headers=headers)
    other = api.post("/v1/jobs", data=data, files={"file": ("a.wav", tone_wav(0.3))}, headers=headers)
    assert same.json()["id"] == first["id"]
    assert problem_of(other) == (422, "idempotency_mismatch")
    assert problem_of(api.post("/v1/jobs", json=TTS, headers={"Idempotency-Key": "a b"}))[0] == 422
