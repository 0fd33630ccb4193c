"""The description of the API, and the API held to it."""

import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from api.openai_errors import is_openai_path
from stage_pipeline.errors import ErrorCode
from tests.integration.api.conftest import TTS, Api, multipart_body, tone_wav
from tests.integration.api.walk import Walk
from tests.integration.test_voices import recording

HOOK = {"url": "https://hooks.example.com/x", "secret": "whsec_" + "QUJD" * 10, "events": ["job.canceled"]}


@pytest.fixture
def document(api: Api) -> dict:
    return api.get("/openapi.json").json()


def test_the_document_is_valid_openapi(document):
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()


def test_every_route_is_described_and_every_description_is_full(api: Api, document):
    assert {path for path in document["paths"] if not _has_a_walk_of_its_own(path)} == {
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/cancel",
        "/v1/jobs/{job_id}/events",
        "/v1/jobs/{job_id}/audio",
        "/v1/jobs/{job_id}/transcript",
        "/v1/jobs/{job_id}/webhooks",
        "/v1/jobs/{job_id}/webhooks/{delivery_id}/replay",
        "/v1/voices",
        "/v1/voices/{name}",
        "/v1/voices/{name}/preview",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path)), f"{method} {path}"
            assert operation["summary"] and operation["operationId"]
            assert all(answer["description"] for answer in operation["responses"].values())


def test_the_page_works_without_the_world_outside(api: Api):
    page = api.get("/docs")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for path in ("/docs", "/docs/docs.js", "/docs/docs.css"):
        answer = api.get(path)
        assert answer.status_code == 200
        assert not re.search(r"(src|href|url)\W{1,3}(https?:)?//", answer.text)
    for name in re.findall(r'(?:src|href)="(/[^"]*)"', page.text):
        assert api.get(name).status_code == 200


def walk_voices(walk: Walk, api: Api, guarded: Api) -> None:
    sent = {"data": {"name": "Anna"}, "files": {"file": ("a.wav", recording())}}
    walk("POST", "/v1/voices", 201, **sent)
    walk("POST", "/v1/voices", 200, **sent)
    walk("POST", "/v1/voices", 409, **sent | {"data": {"name": "default"}})
    walk("POST", "/v1/voices", 422, **sent | {"data": {"name": "../x"}})
    walk("POST", "/v1/voices", 400, **multipart_body(name=b"Anna"))
    walk("POST", "/v1/voices", 413, **multipart_body(name=b"x" * 600_000))
    walk("POST", "/v1/voices", 415, json={})
    walk("GET", "/v1/voices", 200)
    walk("GET", "/v1/voices?limit=0", 422)
    walk("GET", "/v1/voices/Anna/preview", 200)
    walk("GET", "/v1/voices/Anna/preview", 406, headers={"Accept": "text/html"})
    walk("GET", "/v1/voices/Anna", 200)
    walk("DELETE", "/v1/voices/default", 409)
    with api.broker_away():
        walk("POST", "/v1/voices", 503, **sent)
        walk("GET", "/v1/voices", 503)
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/preview")):
            walk(method, f"/v1/voices/Anna{path}", 503)
    walk("DELETE", "/v1/voices/Anna", 204)
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/preview")):
        walk(method, f"/v1/voices/Anna{path}", 404)
        walk(method, f"/v1/voices/Anna{path}?model=nope", 422)
        walk(method, f"/v1/voices/Anna{path}", 401, api=guarded)
    walk("POST", "/v1/voices", 401, api=guarded)
    walk("GET", "/v1/voices", 401, api=guarded)


def test_each_endpoint_gives_each_status_it_promises(api: Api, guarded: Api, small_queue: Api, document):
    walk = Walk(api, document)
    key = {"Idempotency-Key": "walk"}
    walk("POST", "/v1/jobs", 201, json={**TTS, "webhook": HOOK}, headers=key)
    walk("POST", "/v1/jobs", 200, json={**TTS, "webhook": HOOK}, headers=key)
    walk("POST", "/v1/jobs", 422, json={**TTS, "seed": 1}, headers=key)
    walk("POST", "/v1/jobs", 400, content=b"{", headers={"Content-Type": "application/json"})
    walk("POST", "/v1/jobs", 415, content=b"{}", headers={"Content-Type": "text/plain"})
    walk("POST", "/v1/jobs", 413, **multipart_body(language=b"x" * 600_000))
    api.delete(
        f"/v1/jobs/{api.post('/v1/jobs', json=TTS, headers={'Idempotency-Key': 'gone'}).json()['id']}"
    )
    walk("POST", "/v1/jobs", 410, json=TTS, headers={"Idempotency-Key": "gone"})
    for _ in range(3):
        small_queue.post("/v1/jobs", json=TTS)
    walk("POST", "/v1/jobs", 429, json=TTS, api=small_queue)

    queued, spoken, canceled, deleted = (api.make()["id"] for _ in range(4))
    heard, failed = (api.make_asr(tone_wav(0.1))["id"] for _ in range(2))
    api.hand.speak(spoken)
    api.hand.transcribe(heard, "hello there")
    api.hand.fail(api.hand.claim(failed, "thinker"), ErrorCode.NOT_AUDIO, "this is no audio")
    api.delete(f"/v1/jobs/{deleted}")
    hooked = walk("POST", "/v1/jobs", 201, json={**TTS, "webhook": HOOK})["id"]
    api.post(f"/v1/jobs/{hooked}/cancel")
    delivery = walk("GET", f"/v1/jobs/{hooked}/webhooks", 200)["data"][0]["id"]
    walk("POST", f"/v1/jobs/{hooked}/webhooks/{delivery}/replay", 202)

    walk("GET", "/v1/jobs?limit=100", 200)
    walk("GET", "/v1/jobs?limit=0", 422)
    for job_id in (queued, spoken, heard, failed):
        walk("GET", f"/v1/jobs/{job_id}", 200)
    walk("GET", f"/v1/jobs/{queued}?wait=x", 422)
    walk("POST", f"/v1/jobs/{canceled}/cancel", 200)
    walk("POST", f"/v1/jobs/{spoken}/cancel", 409)
    walk("DELETE", f"/v1/jobs/{canceled}", 204)

    last = api.backend.events.read(spoken)[-1].id
    walk("GET", f"/v1/jobs/{spoken}/events", 200)
    walk("GET", f"/v1/jobs/{spoken}/events?last_event_id={last}", 204)
    walk("GET", f"/v1/jobs/{spoken}/events?last_event_id=x", 422)
    walk("GET", f"/v1/jobs/{spoken}/audio", 200)
    walk("GET", f"/v1/jobs/{spoken}/audio", 206, headers={"Range": "bytes=0-9"})
    walk("GET", f"/v1/jobs/{spoken}/audio", 416, headers={"Range": "bytes=99999999-"})
    walk("GET", f"/v1/jobs/{spoken}/audio?format=x", 422)
    walk("GET", f"/v1/jobs/{spoken}/audio", 406, headers={"Accept": "text/html"})
    tag = api.head(f"/v1/jobs/{spoken}/audio").headers["ETag"]
    walk("GET", f"/v1/jobs/{spoken}/audio", 304, headers={"If-None-Match": tag})
    for form in ("json", "text", "srt", "vtt"):
        walk("GET", f"/v1/jobs/{heard}/transcript?format={form}", 200)
    walk("GET", f"/v1/jobs/{heard}/transcript?format=x", 422)
    walk("GET", f"/v1/jobs/{queued}/transcript", 409)

    under = ["", "/events", "/audio", "/transcript", "/webhooks"]
    for method, path in [("GET", path) for path in under] + [
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("POST", "/webhooks/msg_1/replay"),
    ]:
        walk(method, f"/v1/jobs/nope{path}", 404)
        walk(method, f"/v1/jobs/{deleted}{path}", 410)
        walk(method, f"/v1/jobs/{queued}{path}", 401, api=guarded)
    walk("GET", "/v1/jobs", 401, api=guarded)
    walk("POST", "/v1/jobs", 401, api=guarded)

    walk_voices(walk, api, guarded)
    walk("GET", "/healthz", 200)
    walk("GET", "/metrics", 200)
    with api.broker_away():
        walk("GET", "/readyz", 503)
        walk("GET", "/v1/jobs", 503)
        walk("POST", "/v1/jobs", 503, json=TTS)
        for method, path in [("GET", path) for path in under] + [
            ("DELETE", ""),
            ("POST", "/cancel"),
            ("POST", "/webhooks/msg_1/replay"),
        ]:
            walk(method, f"/v1/jobs/{spoken}{path}", 503)
    with api.all_pools():
        walk("GET", "/readyz", 200)
    # The one left comes only from a server that stops: test_waiters.py sees it.
    missed = {promise for promise in walk.missed() if not _has_a_walk_of_its_own(promise[1])}
    assert missed == {("get", "/v1/jobs/{job_id}/audio", 409)}


def _has_a_walk_of_its_own(path: str) -> bool:
    return is_openai_path(path) or path.startswith(("/v1/files", "/v1/batches"))
