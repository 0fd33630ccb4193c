import base64
from pathlib import Path

import pytest

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers.faults import InvalidRequest
from workers.job_request import check_rules, parse_request, spec_of
from workers.settings import Settings

SETTINGS = Settings(home=Path("/nowhere"), webhook_secret="whsec_" + base64.b64encode(b"k" * 32).decode())
STAGES = ({"stage_id": 0}, {"stage_id": 1})
DEPLOY = DeployConfig(model="m", engine="noop", voices={"joe": "joe"}, stages=STAGES)
LISTENS_ONLY = DeployConfig(model="m", engine="noop", stages=STAGES[:1])
TTS = {"type": "tts", "text": "Hello."}
ASR = {"type": "asr", "audio_url": "https://example.com/a.wav"}
S2ST = {**ASR, "type": "s2st"}


def refusal(fields, *, from_form=False, deploy=DEPLOY, settings=SETTINGS) -> StagewaveError:
    with pytest.raises(StagewaveError) as caught:
        check_rules(parse_request(fields, from_form=from_form), deploy, settings)
    return caught.value


def accepted(fields, *, from_form=False, deploy=DEPLOY):
    request = parse_request(fields, from_form=from_form)
    check_rules(request, deploy, SETTINGS)
    return request


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "vad"}, "type"),
        ({"type": None}, "type"),
        ({"text": 5}, "text"),
        ({"priority": 11}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"priority": True}, "priority"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"live": "yes"}, "live"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"deadline_s": 10**9}, "deadline_s"),
        ({"response_format": "aiff"}, "response_format"),
        ({"mode": "fast"}, "mode"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"k": "x" * 20_000}}, "metadata"),
        ({"sampling_params_list": [{"temperatur": 1}]}, "sampling_params_list.0.temperatur"),
        ({"sampling_params_list": [{"temperature": -1}]}, "sampling_params_list.0.temperature"),
        ({"sampling_params_list": [{}, {}, {}]}, "sampling_params_list"),
        ({"webhook": {"url": "https://x.example/", "events": ["job.exploded"]}}, "webhook.events.0"),
        ({"webhook": {"url": "https://x.example/", "events": []}}, "webhook.events"),
        ({"webhook": {"url": "ftp://x.example/"}}, "webhook.url"),
        ({"webhook": {"url": "https://user:pw@x.example/"}}, "webhook.url"),
        ({"webhook": {"url": "https://x.example/\r\nX: y"}}, "webhook.url"),
        ({"webhook": {"url": "https://x.example/", "secret": "whsec_c2hvcnQ="}}, "webhook.secret"),
        ({"webhook": {"url": "https://x.example/", "secret": "hunter2"}}, "webhook.secret"),
        ({"speeed": 1}, "speeed"),
        ({"a\r\nb": 1}, "(unknown)"),
        ({"audio_url": "https://example.com/a.wav"}, "audio_url"),
        ({"word_timestamps": True}, "word_timestamps"),
        ({"target_language": "en"}, "target_language"),
        ({"instructions": "x" * 5_000}, "instructions"),
    ],
)
def test_what_is_wrong_in_a_request_is_named(change, field):
    error = refusal({**TTS, **change})
    assert error.field == field
    assert error.code.http_status == 422


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({**TTS, "model": "gpt"}, "model", ErrorCode.MODEL_UNKNOWN),
        ({**TTS, "language": "klingonese!"}, "language", ErrorCode.LANGUAGE_UNSUPPORTED),
        ({**S2ST, "target_language": "../en"}, "target_language", ErrorCode.LANGUAGE_UNSUPPORTED),
        ({"type": "tts"}, "text", ErrorCode.INVALID_REQUEST),
        ({"type": "tts", "text": "x" * 200_001}, "text", ErrorCode.TEXT_TOO_LONG),
        ({**ASR, "text": "hello"}, "text", ErrorCode.INVALID_REQUEST),
        ({**ASR, "voice": "joe"}, "voice", ErrorCode.INVALID_REQUEST),
        ({**ASR, "response_format": "mp3"}, "response_format", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_rule_that_is_broken_has_a_code_of_its_own(fields, field, code):
    error = refusal(fields)
    assert (error.field, error.code) == (field, code)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "...", "?!", "🎧🎉", "—", "\u200b", "“”"])
def test_text_with_nothing_to_speak_is_empty(text):
    assert refusal({"type": "tts", "text": text}).code is ErrorCode.TEXT_EMPTY


@pytest.mark.parametrize("text", ["a", "5", "你好", "🎧 ok", "ß", "½"])
def test_text_with_a_letter_or_a_digit_is_not(text):
    assert accepted({"type": "tts", "text": text}).text == text


def test_all_faults_of_a_request_are_told_at_once():
    error = refusal({**TTS, "priority": 99, "seed": -1, "speeed": 1})
    assert isinstance(error, InvalidRequest)
    assert {fault.field for fault in error.faults} == {"priority", "seed", "speeed"}


def test_no_message_repeats_what_the_client_wrote():
    error = refusal({**TTS, "mode": "<script>", "model": "<script>", "seed": "<script>"})
    assert isinstance(error, InvalidRequest)
    assert "script" not in "".join(fault.message for fault in error.faults)


@pytest.mark.parametrize("fields", [TTS, S2ST])
def test_a_deploy_without_token2wav_only_takes_asr(fields):
    error = refusal(fields, deploy=LISTENS_ONLY)
    assert (error.field, error.code.http_status) == ("type", 422)
    accepted(ASR, deploy=LISTENS_ONLY)


def test_a_form_carries_numbers_and_booleans_as_text():
    request = accepted(
        {"type": "asr", "word_timestamps": "true", "priority": "-3", "deadline_s": "2.5"}, from_form=True
    )
    assert (request.word_timestamps, request.priority, request.deadline_s) == (True, -3, 2.5)
    assert refusal({"type": "asr", "deadline_s": "nan"}, from_form=True).field == "deadline_s"


def test_a_webhook_needs_a_secret_from_somewhere():
    fields = {**TTS, "webhook": {"url": "https://x.example/hook"}}
    accepted(fields)
    assert refusal(fields, settings=Settings()).field == "webhook.secret"


def test_default_values_of_needless_fields_are_no_mistake():
    accepted({**ASR, "voice": "default", "response_format": "wav", "live": False, "text": ""})


def test_another_speed_is_for_models_that_can_speak_at_it():
    fields = {**TTS, "speed": 1.5}
    assert refusal(fields).field == "speed"
    embedded = DeployConfig(model="m", engine="embedded", stages=STAGES)
    assert spec_of(accepted(fields, deploy=embedded), embedded, None).speed == 1.5
    assert refusal({**ASR, "speed": 1.5}, deploy=embedded).field == "speed"
    assert refusal({**TTS, "speed": 3}, deploy=embedded).message.endswith("0.25 to 2")


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        ("speed", 0.2, 1.0),
        ("sample_rate_hz", 7999, 8000),
        ("sample_rate_hz", 48_001, 48_000),
        ("sample_rate_hz", 16_000.5, 16_000),
        ("loudness", -9.5, -10),
        ("loudness", -41, -23.5),
    ],
)
def test_how_the_speech_is_given_has_its_bounds(field, wrong, right):
    assert refusal({**TTS, field: wrong}).field == field
    assert getattr(spec_of(accepted({**TTS, field: right}), DEPLOY, None), field) == right
    if field != "speed":
        assert refusal({**ASR, field: right}).field == field


def test_a_request_becomes_the_spec_of_a_job():
    request = accepted(
        {
            **TTS,
            "voice": "joe",
            "seed": 7,
            "priority": 2,
            "metadata": {"k": [1, None]},
            "sampling_params_list": [{"temperature": 0, "top_k": 5}],
            "webhook": {"url": "https://x.example/", "events": ["job.failed", "job.failed"]},
        }
    )
    spec = spec_of(request, DEPLOY, None)
    assert (spec.type, spec.model, spec.mode, spec.voice, spec.seed) == (Task.TTS, "m", "auto", "joe", 7)
    assert spec.sampling_params_list == ({"temperature": 0, "top_k": 5},)
    assert spec.webhook is not None and spec.webhook.events == ("job.failed",)
    assert type(spec).from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("configured", "mode"), [(None, "auto"), (True, "async_chunk"), (False, "sequential")]
)
def test_the_deploy_config_says_which_mode_is_the_default(configured, mode):
    deploy = DEPLOY.model_copy(update={"async_chunk": configured})
    assert spec_of(accepted(TTS), deploy, None).mode == mode
    assert spec_of(accepted({**TTS, "mode": "sequential"}), deploy, None).mode == "sequential"
