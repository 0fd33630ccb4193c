"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``, with an engine that only counts seconds."""

from collections.abc import Callable

import httpx
import openai as openai_package
import pytest
from openai import OpenAI

from stage_pipeline.stages import Task
from tests.integration.api.conftest import Api, multipart_body, tone_wav
from tests.integration.conftest import System
from tests.integration.openai.conftest import error_of, newest, wait_for_job
from workers.states import Status

WAV = tone_wav(1.5)
SAID = "1.500 seconds"


def test_the_openai_client_gets_each_form(noop: System, openai: OpenAI):
    def heard(**how: object) -> object:
        return openai.audio.transcriptions.create(model="whisper-1", file=("a.wav", WAV), **how)

    plain = heard()
    assert plain.text == SAID
    assert (plain.usage.type, plain.usage.seconds) == ("duration", 1.5)
    assert heard(response_format="text") == f"{SAID}\n"
    # This engine knows no times: its words are one segment as long as what was heard.
    assert heard(response_format="srt") == f"1\n00:00:00,000 --> 00:00:01,500\n{SAID}\n\n"
    assert heard(response_format="vtt") == f"WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n{SAID}\n\n"
    verbose = heard(response_format="verbose_json")
    assert (verbose.text, verbose.duration, verbose.words) == (SAID, 1.5, None)
    assert [(part.text, part.start, part.end) for part in verbose.segments] == [(SAID, 0.0, 1.5)]


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("text", "hello there\n"),
        ("srt", "1\n00:00:00,500 --> 00:00:01,500\nhello there\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\nhello there\n\n"),
    ],
)
def test_times_stand_in_subtitles(api: Api, later: Callable[..., None], form: str, body: str):
    later(0, lambda: api.hand.transcribe(wait_for_job(api).id, "hello there"))
    with OpenAI(base_url=f"{api.url}/v1", api_key="EMPTY") as client:
        assert client.audio.transcriptions.create(model="", file=WAV, response_format=form) == body


def test_what_is_asked_reaches_the_job(noop: System, openai: OpenAI):
    answer = openai.audio.transcriptions.with_raw_response.create(
        model="noop",
        file=("会议\r\n.wav", WAV),
        language="de",
        prompt="Names: Köln.",
        temperature=0.4,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        chunking_strategy="auto",
    )
    spec = noop.job(answer.headers["x-job-id"]).spec
    assert (spec.type, spec.language, spec.instructions) == (Task.ASR, "de", "Names: Köln.")
    assert spec.word_timestamps and spec.sampling_params_list == ({"temperature": 0.4},)
    assert spec.target_language is None
    assert answer.parse().words == []


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by OpenAI; its users still have it
def test_a_translation_is_into_english(noop: System, openai: OpenAI):
    translated = openai.audio.translations.create(
        model="whisper-1", file=("a.wav", WAV), response_format="verbose_json"
    )
    assert (translated.text, translated.language, translated.duration) == (SAID, "english", 1.5)
    assert newest(noop).spec.target_language == "en"
    assert openai.audio.translations.create(model="noop", file=("a.wav", WAV)).text == SAID


def test_the_openai_client_reads_the_text_as_it_comes(noop: System, openai: OpenAI):
    stream = openai.audio.transcriptions.create(model="noop", file=("a.wav", WAV), stream=True)
    *deltas, done = list(stream)
    assert [delta.type for delta in deltas] == ["transcript.text.delta"]
    assert "".join(delta.delta for delta in deltas) == SAID
    assert (done.type, done.text, done.usage.type) == ("transcript.text.done", SAID, "tokens")
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert stream.response.headers["x-job-id"] == newest(noop).id


def test_audio_that_is_none_is_a_bad_request_and_names_its_job(noop: System, openai: OpenAI):
    for stream in (False, True):
        with pytest.raises(openai_package.BadRequestError) as caught:
            openai.audio.transcriptions.create(
                model="noop", file=("a.wav", b"<html></html>" * 99), stream=stream
            )
        assert caught.value.code == "not_audio"
        job = noop.job(caught.value.response.headers["x-job-id"])
        assert job.status is Status.FAILED


@pytest.mark.parametrize(
    ("fields", "file", "status", "code", "param"),
    [
        ({"model": "noop"}, None, 400, "invalid_multipart", "file"),
        ({"file": "noop"}, None, 400, "invalid_multipart", "file"),
        ({}, b"", 400, "audio_empty", "file"),
        ({"response_format": "diarized_json"}, WAV, 400, "unsupported_value", "response_format"),
        ({"response_format": "docx"}, WAV, 400, "invalid_request", "response_format"),
        ({"include[]": "logprobs"}, WAV, 400, "unsupported_value", "include"),
        ({"timestamp_granularities[]": "word"}, WAV, 400, "unsupported_value", "timestamp_granularities"),
        (
            {"response_format": "verbose_json", "timestamp_granularities[]": "letter"},
            WAV,
            400,
            "invalid_request",
            "timestamp_granularities",
        ),
        ({"response_format": "srt", "stream": "true"}, WAV, 400, "unsupported_value", "stream"),
        ({"temperature": "hot"}, WAV, 400, "invalid_request", "temperature"),
        ({"language": "../en"}, WAV, 400, "language_unsupported", "language"),
        ({"prompt": "x" * 5000}, WAV, 400, "invalid_request", "prompt"),
        ({"model": "no-such"}, WAV, 404, "model_not_found", "model"),
        ({"model": ["a", "b"]}, WAV, 400, "invalid_multipart", None),
        ({"speed": "2"}, WAV, 400, "invalid_request", "speed"),
    ],
)
@pytest.mark.parametrize("path", ["transcriptions", "translations"])
def test_what_cannot_be_done_is_an_error_in_openais_form(
    http: httpx.Client, path, fields, file, status, code, param
):
    data = {"model": "noop", **fields}
    if file is None:
        answer = http.post(f"/v1/audio/{path}", **multipart_body(**{name: b"noop" for name in fields}))
    else:
        answer = http.post(f"/v1/audio/{path}", data=data, files={"file": ("a.wav", file)})
    assert error_of(answer) == (status, code, param)
