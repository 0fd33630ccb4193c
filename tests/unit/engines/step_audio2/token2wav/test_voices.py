"""Voices: found, checked, prepared once."""

import io
from concurrent.futures import ThreadPoolExecutor

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
        (wav(speech(1.9)), ErrorCode.AUDIO_TOO_SHORT, "2.0 s at least"),
        (wav(speech(17)), ErrorCode.AUDIO_TOO_LONG, "16.9 s at most"),
        (wav(speech(4, 8_000), 8_000), ErrorCode.AUDIO_RATE_TOO_LOW, "8000 Hz"),
        (wav(np.zeros(72_000)), ErrorCode.AUDIO_SILENT, "silent"),
        (wav(speech(3) * 0.01), ErrorCode.AUDIO_TOO_QUIET, "faint"),
        (wav(np.clip(speech(3) * 20, -1, 1)), ErrorCode.AUDIO_CLIPPED, "clipped"),
        (
            wav(np.concatenate([speech(0.5), np.zeros(72_000)])),
            ErrorCode.AUDIO_SILENT,
            "most of its time",
        ),
        (wav(np.full(72_000, np.nan), subtype="FLOAT"), ErrorCode.NOT_AUDIO, "no numbers"),
        (wav(np.stack([np.zeros(72_000), speech(3)], 1)), ErrorCode.AUDIO_SILENT, "silent"),
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


# -- voices made at run time -------------------------------------------------------------------------


def tokens_of(count):
    return tuple(np.random.RandomState(0).randint(0, 6561, count).tolist())


def voiced(stream, count=53):
    """Window by window, as a listener gets it."""
    tokens, pieces = tokens_of(count), []
    pieces += stream.feed(tokens[:28], False)
    pieces += stream.feed(tokens[25:], True)
    return np.concatenate(pieces)


def made_voice(engine, seconds=3.0, pitch=1.0):
    return engine.prepare_voice(wav(speech(seconds * pitch)[: round(24_000 * seconds)]))


def not_asked():
    raise AssertionError("the engine has this voice already")


def test_what_one_process_prepares_sounds_the_same_in_another(engine, prompt):
    first, second = engine(longest_voice_s=16.9), engine(longest_voice_s=16.9)
    features = first.prepare_voice(prompt)
    assert first.voice_tag == second.voice_tag and first.voice_tag.isalnum()
    waves = [voiced(shared.open("voice_1", 7, features=lambda: features)) for shared in (first, second)]
    assert np.array_equal(*waves)
    # It is the voice of its prompt, and another than that of another prompt.
    assert np.array_equal(voiced(first.open("default", 7)), waves[0])
    other = made_voice(first)
    assert not np.array_equal(voiced(first.open("voice_2", 7, features=lambda: other)), waves[0])


def test_features_are_asked_for_once_and_the_longest_unused_voice_is_forgotten(engine, monkeypatch):
    monkeypatch.setattr("stage_pipeline.engines.step_audio2.token2wav.engine._VOICES", 2)
    shared = engine(longest_voice_s=16.9)
    features = made_voice(shared)
    asked = []

    def of(name):
        return lambda: asked.append(name) or features

    for name in ("a", "b", "a", "c", "a", "b"):
        shared.open(name, 1, features=of(name)).close()
    assert asked == ["a", "b", "c", "b"]


def test_a_voice_that_is_forgotten_while_it_sounds_goes_on(engine, monkeypatch):
    module = "stage_pipeline.engines.step_audio2.token2wav.engine"
    monkeypatch.setattr(f"{module}._VOICES", 1)
    monkeypatch.setattr(f"{module}._CACHES", 0)
    shared = engine(longest_voice_s=16.9, streams=2)
    made = [made_voice(shared), made_voice(shared, 2.5)]
    expected = voiced(shared.open("a", 3, features=lambda: made[0]))
    stream, tokens = shared.open("a", 3, features=lambda: made[0]), tokens_of(53)
    heard = list(stream.feed(tokens[:28], False))
    for name in ("b", "c", "default"):  # of which each takes the place of the one before
        features = None if name == "default" else lambda: made[1]
        voiced(shared.open(name, 3, features=features))
    heard += stream.feed(tokens[25:], True)
    assert np.array_equal(np.concatenate(heard), expected)


def test_many_threads_that_open_one_new_voice_share_it(engine):
    shared = engine(longest_voice_s=16.9, streams=4)
    features = made_voice(shared)
    with ThreadPoolExecutor(4) as pool:
        waves = list(pool.map(lambda _: voiced(shared.open("a", 5, features=lambda: features)), range(4)))
    assert all(np.allclose(wave, waves[0], rtol=0, atol=1e-4) for wave in waves)  # batched in any way
    shared.open("a", 5, features=not_asked).close()


def test_a_prompt_longer_than_a_slot_is_refused_with_the_length_that_fits(engine):
    shared = engine(longest_voice_s=4.0)
    made_voice(shared, 4.0)
    with pytest.raises(StagewaveError, match=r"4\.0 s at most") as caught:
        made_voice(shared, 5.0)
    assert caught.value.code is ErrorCode.AUDIO_TOO_LONG
    longer = made_voice(engine(longest_voice_s=16.9), 5.0)
    with pytest.raises(StagewaveError) as caught:
        shared.open("a", 1, features=lambda: longer)
    assert caught.value.code is ErrorCode.AUDIO_TOO_LONG


def test_what_is_no_features_is_an_engines_failure(engine):
    with pytest.raises(StagewaveError) as caught:
        engine().open("a", 1, features=lambda: b"x" * 100)
    assert caught.value.code is ErrorCode.ENGINE_FAILED


def test_another_speed_is_refused(engine):
    with pytest.raises(StagewaveError) as caught:
        engine().open("default", 1, speed=1.5)
    assert caught.value.field == "speed"
