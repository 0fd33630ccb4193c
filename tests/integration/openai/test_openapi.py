"""The description of these paths, and the paths held to it."""

import base64
from collections.abc import Callable

from api.openai_errors import is_openai_path
from tests.integration.api.conftest import Api, multipart_body, tone_wav
from tests.integration.api.test_openapi import Walk
from tests.integration.openai.conftest import wait_for_job

WAV = tone_wav(0.2)
AUDIO = {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}}
SPEECH = "/v1/audio/speech"
CHAT = "/v1/chat/completions"
HEARD = ("/v1/audio/transcriptions", "/v1/audio/translations")
LARGE = b'{"input": "' + b"x" * 200_000 + b'"}'


def test_each_endpoint_gives_each_status_it_promises(
    api: Api, guarded: Api, small_queue: Api, crowded: Api, later: Callable[..., None]
):
    document = api.get("/openapi.json").json()
    walk = Walk(api, document)
    for _ in range(3):
        small_queue.make()

    def by_hand(work: Callable[[str], object]) -> None:
        api.empty()
        later(0.0, lambda: work(wait_for_job(api).id))

    def common(path: str, body: dict) -> None:
        by_hand(api.hand.speak if path == SPEECH else lambda job_id: api.hand.transcribe(job_id, "hello"))
        walk("POST", path, 200, **body)
        by_hand(api.backend.jobs.cancel)
        walk("POST", path, 410, **body)
        walk("POST", path, 401, api=guarded, **body)
        walk("POST", path, 415, content=b"x", headers={"Content-Type": "text/plain"})
        walk("POST", path, 429, api=small_queue, **body)
        walk("POST", path, 503, api=crowded, **body)

    for path, fields in ((SPEECH, {"input": "Hi."}), (CHAT, {"messages": [_user(AUDIO)]})):
        common(path, {"json": fields})
        walk("POST", path, 400, json={})
        walk("POST", path, 404, json={**fields, "model": "nope"})
        walk("POST", path, 413, content=LARGE, headers={"Content-Type": "application/json"}, api=crowded)
    for path in HEARD:
        file = {"files": {"file": ("a.wav", WAV)}}
        common(path, file)
        walk("POST", path, 400, **multipart_body(model=b"noop"))
        walk("POST", path, 404, data={"model": "nope"}, **file)
        walk("POST", path, 413, **multipart_body(prompt=b"x" * 600_000))
        for form in ("text", "srt", "vtt", "verbose_json"):
            by_hand(lambda job_id: api.hand.transcribe(job_id, "hello there"))
            walk("POST", path, 200, data={"response_format": form}, **file)
    by_hand(api.hand.speak)
    walk("POST", CHAT, 200, json={"messages": [_user({"type": "text", "text": "Hello.<tts_start>"})]})

    walk("GET", "/v1/models", 200)
    walk("GET", "/v1/models/noop", 200)
    walk("GET", "/v1/models/nope", 404)
    for path in ("/v1/models", "/v1/models/noop"):
        walk("GET", path, 401, api=guarded)
    assert {promise for promise in walk.missed() if is_openai_path(promise[1])} == set()


def test_every_error_is_described_in_openais_form(api: Api):
    paths = api.get("/openapi.json").json()["paths"]
    ours = {path: methods for path, methods in paths.items() if is_openai_path(path)}
    assert set(ours) == {SPEECH, CHAT, *HEARD, "/v1/models", "/v1/models/{model_id}"}
    for methods in ours.values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/OpenAiError"}


def _user(*parts: dict) -> dict:
    return {"role": "user", "content": list(parts)}
