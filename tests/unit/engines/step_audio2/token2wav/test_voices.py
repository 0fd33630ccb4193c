"""Voices: found, checked, prepared once."""

import io

import numpy as np
import pytest
import soundfile
import torch

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.step_audio2.token2wav.voices import VoiceShelf, default_prompt, read_prompt
from stage_pipeline.errors import ErrorCode, StagewaveError


def wav(samples, rate_hz=24_000, **options):
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="WAV", **options)
    return file.getvalue()


def speech(seconds, rate_hz=24_000):
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    return (0.3 * np.sin(2 * np.pi * 200 * time) * (1.1 + np.sin(2 * np.pi * 4 * time)) / 2).astype(
        np.float32
    )


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", ErrorCode.NOT_AUDIO, "not a wav"),
        (b"<html></html>" * 100, ErrorCode.NOT_AUDIO, "not a wav"),
        (wav(np.zeros(0)), ErrorCode.AUDIO_EMPTY, "no samples"),
        (wav(speech(1.9)), ErrorCode.INVALID_REQUEST, "2.0 s at least"),
        (wav(speech(17)), ErrorCode.AUDIO_TOO_LONG, "16.9 s at most"),
        (wav(speech(4, 8_000), 8_000), ErrorCode.INVALID_REQUEST, "8000 Hz"),
        (wav(np.zeros(72_000)), ErrorCode.INVALID_REQUEST, "silent"),
        (wav(speech(3) * 0.01), ErrorCode.INVALID_REQUEST, "faint"),
        (wav(np.clip(speech(3) * 20, -1, 1)), ErrorCode.INVALID_REQUEST, "clipped"),
        (
            wav(np.concatenate([speech(0.5), np.zeros(72_000)])),
            ErrorCode.INVALID_REQUEST,
            "most of its time",
        ),
        (wav(np.full(72_000, np.nan), subtype="FLOAT"), ErrorCode.NOT_AUDIO, "no numbers"),
        (wav(np.stack([np.zeros(72_000), speech(3)], 1)), ErrorCode.INVALID_REQUEST, "first channel"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused_and_told_why(data, code, says):
    with pytest.raises(StagewaveError, match=says) as caught:
        read_prompt(data)
    assert caught.value.code is code
    assert caught.value.field == "voice"


@pytest.mark.parametrize("rate_hz", [16_000, 22_050, 44_100, 48_000])
def test_prompts_of_usual_rates_are_taken(rate_hz):
    assert read_prompt(wav(speech(3, rate_hz), rate_hz)).samples.shape == (3 * rate_hz, 1)


@pytest.mark.parametrize("seconds", [2.0, 16.9])
def test_the_shortest_and_the_longest_prompt_make_a_voice(goldens, tmp_path, seconds):
    voice = VoiceShelf(tmp_path, goldens).voice(wav(speech(seconds)))
    assert 100 <= voice.frames <= 846
    assert voice.frames == 2 * len(voice.tokens)


def test_the_default_voice_is_looked_for_in_three_places_in_order(tmp_path):
    (tmp_path / "assets").mkdir()
    named, first, second = (
        tmp_path / "mine.wav",
        tmp_path / "assets/default_female.wav",
        tmp_path / "default_female.wav",
    )
    environ = {"STEP_AUDIO2_DEFAULT_PROMPT_WAV": str(named)}
    with pytest.raises(DeployError) as caught:
        default_prompt(tmp_path, environ)
    for place in (
        "STEP_AUDIO2_DEFAULT_PROMPT_WAV",
        "{model}/assets/default_female.wav",
        "{model}/default_female.wav",
    ):
        assert place in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    second.touch()
    assert default_prompt(tmp_path, environ) == second
    first.touch()
    assert default_prompt(tmp_path, environ) == first
    named.touch()
    assert default_prompt(tmp_path, environ) == named
    assert default_prompt(tmp_path, {}) == first


@pytest.fixture
def prompt(goldens):
    return (goldens / "prompt_22k_stereo.wav").read_bytes()


def test_a_voice_is_prepared_once_and_read_by_the_next_worker(goldens, tmp_path, prompt, monkeypatch):
    made = VoiceShelf(tmp_path, goldens).voice(prompt)
    monkeypatch.setattr("stage_pipeline.engines.step_audio2.token2wav.voices.PromptModels", None)
    read = VoiceShelf(tmp_path, goldens).voice(prompt)
    for name in ("tokens", "mel", "embedding"):
        assert torch.equal(getattr(read, name), getattr(made, name))


@pytest.mark.parametrize("damage", ["cut", "flip", "no hash", "no file"])
def test_a_damaged_voice_file_is_prepared_again(goldens, tmp_path, prompt, damage):
    made = VoiceShelf(tmp_path, goldens).voice(prompt)
    (file,), (promised,) = tmp_path.glob("*.safetensors"), tmp_path.glob("*.sha256")
    data = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(data[:-1])
        case "flip":
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "no hash":
            promised.unlink()
        case "no file":
            file.unlink()
    assert torch.equal(VoiceShelf(tmp_path, goldens).voice(prompt).mel, made.mel)
    assert file.read_bytes() == data
    assert promised.is_file()


def test_other_models_make_another_voice_of_the_same_prompt(goldens, tmp_path, prompt):
    model = tmp_path / "model/token2wav"
    model.mkdir(parents=True)
    for name in ("campplus.onnx", "speech_tokenizer_v2_25hz.onnx"):
        (model / name).write_bytes((goldens / "token2wav" / name).read_bytes())
    shelf = tmp_path / "shelf"
    VoiceShelf(shelf, goldens).voice(prompt)
    VoiceShelf(shelf, model.parent).voice(prompt)
    assert len(list(shelf.glob("*.safetensors"))) == 1  # equal files are the same models
    with (model / "campplus.onnx").open("ab") as file:
        file.write(b"\x08\x08")  # the version field again, with the same value
    VoiceShelf(shelf, model.parent).voice(prompt)
    assert len(list(shelf.glob("*.safetensors"))) == 2
