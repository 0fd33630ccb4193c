"""What a line of a batch may say."""

from __future__ import annotations

import json

import pytest

from stage_pipeline.deploy import DeployConfig
from workers.backend import Backend, connect_backend
from workers.batch import BatchSpec, new_batch_id
from workers.batch_request import LineJob, LineRefused, LineRules
from workers.input_audio import SentBytes
from workers.settings import Settings

STAGES = ({"stage_id": 0}, {"stage_id": 1})
DEPLOY = DeployConfig(model="m", engine="noop", voices={"joe": "0"}, stages=STAGES)
BATCH = new_batch_id()
AUDIO = "https://example.com/a.wav"


@pytest.fixture
def rules(settings: Settings) -> LineRules:
    backend: Backend = connect_backend(settings)
    return LineRules(backend, [DEPLOY])


def line(rules: LineRules, said: object, **spec: object) -> LineJob:
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    return rules.read(data, 7, BATCH, BatchSpec("uploads/x", **spec))


def openai(url: str, **body: object) -> dict:
    return {"custom_id": "a", "method": "POST", "url": url, "body": body}


def test_a_line_of_ours_is_a_job_with_a_name_for_it(rules: LineRules) -> None:
    made = line(rules, {"custom_id": "a", "type": "tts", "text": "Hi.", "voice": "joe", "seed": 3})
    assert made.custom_id == "a" and made.audio is None
    assert (made.spec.text, made.spec.voice, made.spec.seed) == ("Hi.", "joe", 3)
    assert made.spec.batch_id == BATCH and made.spec.line is not None
    assert (made.spec.line.number, made.spec.line.custom_id) == (7, "a")
    assert line(rules, {"type": "asr", "audio_url": AUDIO}).custom_id is None


def test_a_batch_speaks_whole_utterances_unless_a_line_wants_it_otherwise(rules: LineRules) -> None:
    assert line(rules, {"type": "tts", "text": "Hi."}).spec.mode == "sequential"
    assert line(rules, {"type": "tts", "text": "Hi.", "mode": "async_chunk"}).spec.mode == "async_chunk"


def test_openais_lines_become_the_jobs_of_their_endpoints(rules: LineRules) -> None:
    speech = line(rules, openai("/v1/audio/speech", input="Hi.", model="tts-1", response_format="mp3"))
    assert (speech.spec.type, speech.spec.text, speech.spec.response_format) == ("tts", "Hi.", "mp3")
    heard = line(rules, openai("/v1/audio/transcriptions", file=AUDIO, response_format="srt"))
    assert heard.spec.type == "asr" and heard.spec.line is not None
    assert heard.spec.line.asked == {"response_format": "srt"}
    translated = line(rules, openai("/v1/audio/translations", file=AUDIO))
    assert translated.spec.target_language == "en"
    assert line(rules, openai("/v1/jobs", type="tts", text="Hi.")).spec.text == "Hi."


def test_audio_may_stand_in_the_line(rules: LineRules) -> None:
    made = line(rules, {"type": "asr", "audio_url": "data:audio/wav;base64,AAAA"})
    assert isinstance(made.audio, SentBytes) and made.audio.size_bytes == 3


TTS = {"type": "tts", "text": "Hi."}
REFUSED = [
    (b'{"type": "tts", "text": "half', "invalid_json", None),
    (b"[" * 20_000, "invalid_json", None),
    (b'{"seed": ' + b"9" * 5_000 + b"}", "invalid_json", None),
    (b'{"metadata": {"a": NaN}}', "invalid_json", None),
    (b'{"metadata": {"a": Infinity}}', "invalid_json", None),
    (b'{"type": "tts", "type": "asr"}', "invalid_json", None),
    (b'"tts"', "invalid_json", None),
    (b"42", "invalid_json", None),
    ('{"type": "tts", "text": "Grüße"}'.encode("latin-1"), "invalid_json", None),
    (b'{"type": "tts", "text": "\\ud800"}', "invalid_json", None),
    (b'{"type": "tts", "text": "\x00"}', "invalid_json", None),
    ({**TTS, "custom_id": 7}, "invalid_request", "custom_id"),
    ({**TTS, "custom_id": ""}, "invalid_request", "custom_id"),
    ({**TTS, "custom_id": "x" * 257}, "invalid_request", "custom_id"),
    ({**TTS, "nonsense": 1}, "invalid_request", "nonsense"),
    ({**TTS, "voice": "nobody"}, "voice_unknown", "voice"),
    ({"type": "tts", "text": "..."}, "text_empty", "text"),
    ({"type": "asr"}, "invalid_request", "audio_url"),
    ({"type": "asr", "audio_url": "http://127.0.0.1/x"}, "url_not_allowed", "audio_url"),
    ({"type": "asr", "audio_url": "s3://other/uploads/x"}, "url_not_allowed", "audio_url"),
    (openai("/v1/embeddings", input="Hi."), "invalid_request", "url"),
    ({**openai("/v1/audio/speech", input="Hi."), "method": "GET"}, "invalid_request", "method"),
    ({**openai("/v1/audio/speech", input="Hi."), "extra": 1}, "invalid_request", "extra"),
    (openai("/v1/audio/speech", input="Hi.", stream=True), "invalid_request", "stream"),
    (openai("/v1/audio/speech", input="..."), "text_empty", "input"),
    (openai("/v1/audio/speech", input="Hi.", model="nobody"), "model_unknown", "model"),
    (openai("/v1/audio/transcriptions"), "invalid_request", "file"),
    (openai("/v1/audio/transcriptions", file="ftp://x/y"), "url_not_allowed", "file"),
]


@pytest.mark.parametrize(("said", "code", "field"), REFUSED)
def test_what_is_wrong_with_a_line_has_a_code_and_names_the_field(
    rules: LineRules, said: object, code: str, field: str | None
) -> None:
    with pytest.raises(LineRefused) as caught:
        line(rules, said)
    assert (caught.value.error.code.code, caught.value.error.field) == (code, field)


def test_a_refused_line_keeps_its_name(rules: LineRules) -> None:
    with pytest.raises(LineRefused) as caught:
        line(rules, {"custom_id": "mine", "type": "tts"})
    assert caught.value.custom_id == "mine"


def test_a_batch_for_one_endpoint_takes_no_other_lines(rules: LineRules) -> None:
    endpoint = {"endpoint": "/v1/audio/speech"}
    assert line(rules, openai("/v1/audio/speech", input="Hi."), **endpoint).spec.text == "Hi."
    for other in (openai("/v1/jobs", **TTS), TTS):
        with pytest.raises(LineRefused) as caught:
            line(rules, other, **endpoint)
        assert caught.value.error.field == "url"
