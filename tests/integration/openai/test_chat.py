"""``/v1/chat/completions``: the three ways that Step-Audio2's clients ask in, and OpenAI's."""

import base64
import io

import httpx
import pytest
import soundfile
from openai import OpenAI

from stage_pipeline.stages import Task
from tests.conftest import Serve
from tests.integration.api.conftest import tone_wav
from tests.integration.conftest import System
from tests.integration.openai.conftest import RATE_HZ, SAMPLES_A_TOKEN, error_of, newest

WAV = tone_wav(1.5)
SAID = "1.500 seconds"
DATA_URL = f"data:audio/wav;base64,{base64.b64encode(WAV).decode()}"
TOKENS_UNASKED = 30
THINKER = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": -1,
    "max_tokens": 1024,
    "seed": 7,
    "detokenize": True,
    "repetition_penalty": 1.05,
}
TOKEN2WAV = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "max_tokens": 1, "seed": 7, "detokenize": False}
BEGIN_SPEECH = {"role": "assistant", "content": "<tts_start>"}
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


def system_of(text: str) -> dict:
    return {"role": "system", "content": [{"type": "text", "text": text}]}


def text_part(text: str) -> dict:
    return {"type": "text", "text": text}


def audio_part(url: str = DATA_URL) -> dict:
    return {"type": "audio_url", "audio_url": {"url": url}}


def input_audio() -> dict:
    data = base64.b64encode(WAV).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def user(*parts: dict) -> dict:
    return {"role": "user", "content": list(parts)}


def samples_of(data: str) -> int:
    samples, rate_hz = soundfile.read(io.BytesIO(base64.b64decode(data)))
    assert rate_hz == RATE_HZ
    return len(samples)


def test_step_audio2s_audio_to_text_works(noop: System, openai: OpenAI):
    answer = openai.chat.completions.create(
        model="stepfun-ai/Step-Audio-2-mini",
        messages=[
            system_of("You are a speech recognition assistant."),
            user(audio_part(), text_part("Please transcribe the audio content.")),
        ],
        extra_body={"sampling_params_list": [{**THINKER, "stop_token_ids": [151645]}, TOKEN2WAV]},
    )
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.audio, choice.finish_reason) == (SAID, None, "stop")
    assert (answer.object, answer.model) == ("chat.completion", "noop")
    spec = newest(noop).spec
    assert (spec.type, spec.seed) == (Task.ASR, 7)
    assert spec.instructions == (
        "You are a speech recognition assistant.\nPlease transcribe the audio content."
    )
    assert spec.sampling_params_list[0] == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": -1,
        "max_tokens": 1024,
        "repetition_penalty": 1.05,
    }


@pytest.mark.parametrize("curl", [False, True])
def test_step_audio2s_text_to_audio_works(noop: System, openai: OpenAI, curl: bool):
    """Its Python client ends with a message of the assistant, its curl script with the token in text."""
    said = "tokens=50 and a word"
    messages = [system_of("Read the text aloud."), user(text_part(said + "<tts_start>" * curl))]
    answer = openai.chat.completions.create(
        model="stepfun-ai/Step-Audio2-mini",
        messages=messages if curl else [*messages, BEGIN_SPEECH],
        extra_body={"sampling_params_list": [THINKER, TOKEN2WAV], **({} if curl else CONTINUED)},
    )
    (choice,) = answer.choices
    assert choice.message.content == choice.message.audio.transcript == said
    assert samples_of(choice.message.audio.data) == 50 * SAMPLES_A_TOKEN
    job = newest(noop)
    assert (job.spec.type, job.spec.text, job.spec.instructions) == (Task.TTS, said, "Read the text aloud.")
    assert choice.message.audio.expires_at == int(job.expires_at)
    assert answer.usage.completion_tokens_details.audio_tokens == 50


@pytest.mark.parametrize("curl", [False, True])
def test_step_audio2s_audio_to_audio_works(noop: System, openai: OpenAI, curl: bool):
    messages = [
        system_of("Listen and repeat the audio content."),
        user(audio_part(), text_part("Please repeat." + "<tts_start>" * curl)),
    ]
    answer = openai.chat.completions.create(
        model="stepfun-ai/Step-Audio-2-mini",
        messages=messages if curl else [*messages, BEGIN_SPEECH],
        extra_body={"sampling_params_list": [THINKER, TOKEN2WAV], **({} if curl else CONTINUED)},
    )
    (choice,) = answer.choices
    assert choice.message.content == SAID
    assert samples_of(choice.message.audio.data) == TOKENS_UNASKED * SAMPLES_A_TOKEN
    assert newest(noop).spec.type is Task.S2ST


def test_long_audio_comes_whole_though_it_is_encoded_in_blocks(noop: System, http: httpx.Client):
    body = {"modalities": ["audio"], "messages": [{"role": "user", "content": "tokens=1501"}]}
    answer = http.post("/v1/chat/completions", json=body)
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    data = answer.json()["choices"][0]["message"]["audio"]["data"]
    assert base64.b64decode(data, validate=True) == noop.audio(newest(noop))


def test_openais_own_form_of_audio_in_and_out_works(noop: System, openai: OpenAI):
    answer = openai.chat.completions.create(
        model="gpt-4o-audio-preview",
        modalities=["text", "audio"],
        audio={"voice": "slow", "format": "mp3"},
        messages=[{"role": "user", "content": [input_audio()]}],
        store=True,
        user="somebody",
        metadata={"order": "7"},
        extra_body={"target_language": "en"},
    )
    assert answer.choices[0].message.content == SAID
    spec = newest(noop).spec
    assert (spec.voice, spec.response_format, spec.target_language) == ("slow", "mp3", "en")
    assert spec.metadata == {"order": "7"}
    assert not spec.instructions


def test_a_conversation_that_goes_on_is_about_its_last_question(noop: System, openai: OpenAI):
    first = openai.chat.completions.create(
        model="noop", messages=[{"role": "user", "content": [input_audio()]}]
    )
    openai.chat.completions.create(
        model="noop",
        modalities=["audio"],
        messages=[
            {"role": "user", "content": [input_audio()]},
            first.choices[0].message.model_dump(),
            {"role": "user", "content": "tokens=3"},
        ],
    )
    spec = newest(noop).spec
    assert (spec.type, spec.text) == (Task.TTS, "tokens=3")


def test_audio_is_fetched_from_a_url_but_not_from_inside(http: httpx.Client, serve: Serve):
    url = serve(lambda handler: handler.send_response(200))
    answer = http.post("/v1/chat/completions", json={"messages": [user(audio_part(f"{url}/a.wav"))]})
    assert error_of(answer) == (400, "url_not_allowed", "messages")


def test_text_is_streamed_as_it_is_heard(openai: OpenAI):
    chunks = list(
        openai.chat.completions.create(
            model="noop",
            messages=[user(audio_part())],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    told = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(told) == SAID
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.prompt_tokens == 0
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("hears", [False, True])
def test_audio_is_streamed_as_it_is_made(noop: System, openai: OpenAI, hears: bool):
    parts = [input_audio()] if hears else [text_part("tokens=100 delay_ms=5")]
    stream = openai.chat.completions.create(
        model="noop",
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "pcm16"},
        messages=[{"role": "user", "content": parts}],
        stream=True,
    )
    text, audio, moments = "", b"", []
    for chunk in stream:
        delta = chunk.choices[0].delta.model_dump()
        text += delta["content"] or ""
        if sent := (delta.get("audio") or {}).get("data"):
            audio += base64.b64decode(sent)
            moments.append(len(audio))
    job = noop.job(stream.response.headers["x-job-id"])
    assert text == (SAID if hears else "tokens=100 delay_ms=5")
    assert audio == noop.audio(job)
    assert job.streamed and (hears or len(moments) > 3)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"messages": []}, "invalid_request", "messages"),
        ({"messages": [system_of("x")]}, "invalid_request", "messages"),
        ({"messages": [user(text_part("Hello."))]}, "unsupported_value", "messages"),
        ({"messages": [user(text_part("<tts_start>"))]}, "text_empty", "messages"),
        ({"messages": [user(audio_part(), input_audio())]}, "unsupported_value", "messages"),
        (
            {"messages": [user({"type": "image_url", "image_url": {"url": "x"}})]},
            "invalid_request",
            "messages",
        ),
        ({"messages": [user(audio_part("data:,"))]}, "audio_empty", "messages"),
        ({"messages": [user(audio_part("file:///etc/passwd"))]}, "url_not_allowed", "messages"),
        ({"messages": [user(audio_part())], "continue_final_message": True}, "invalid_request", "messages"),
        (
            {"messages": [user(audio_part()), {"role": "assistant", "content": "Well,"}]},
            "unsupported_value",
            "messages",
        ),
        ({"messages": [user(audio_part())], "tools": []}, "invalid_request", "tools"),
        ({"messages": [user(audio_part())], "n": 2}, "invalid_request", "n"),
        ({"messages": [user(audio_part())], "modalities": ["smell"]}, "invalid_request", "modalities"),
        (
            {"messages": [user(audio_part())], "sampling_params_list": [{"temperatur": 1}]},
            "invalid_request",
            "sampling_params_list.0.temperatur",
        ),
        ({"messages": [user(audio_part())], "audio": {"format": "aac"}}, "unsupported_value", "audio"),
        (
            {"messages": [user(audio_part())], "modalities": ["audio"], "audio": {"voice": "alloy"}},
            "voice_unknown",
            "audio",
        ),
    ],
)
def test_what_means_no_job_is_an_error_in_openais_form(http: httpx.Client, body, code, param):
    assert error_of(http.post("/v1/chat/completions", json=body)) == (400, code, param)
