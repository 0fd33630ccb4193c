"""Which recordings can be a voice."""

import io

import av
import numpy as np
import pytest
import soundfile

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.voice_prompt import PROMPT_RATE_HZ, read_prompt


def speech(seconds, rate_hz=24_000):
    """As loud as speech, with pauses."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    return (0.3 * np.sin(2 * np.pi * 200 * time) * (1.1 + np.sin(2 * np.pi * 4 * time)) / 2).astype(
        np.float32
    )


def file(samples, rate_hz=24_000, form="WAV", **options):
    data = io.BytesIO()
    soundfile.write(data, samples, rate_hz, format=form, **options)
    data.seek(0)
    return data


def m4a(samples, rate_hz=48_000):
    data = io.BytesIO()
    with av.open(data, "w", format="ipod") as container:
        stream = container.add_stream("aac", rate=rate_hz, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate = rate_hz
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    data.seek(0)
    return data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (io.BytesIO(b""), ErrorCode.AUDIO_EMPTY),
        (io.BytesIO(b"<html></html>" * 100), ErrorCode.NOT_AUDIO),
        (file(np.zeros(0)), ErrorCode.AUDIO_EMPTY),
        (file(speech(1.9)), ErrorCode.AUDIO_TOO_SHORT),
        (file(speech(17.0)), ErrorCode.AUDIO_TOO_LONG),
        (file(speech(600.0)), ErrorCode.AUDIO_TOO_LONG),
        (file(speech(4, 8_000), 8_000), ErrorCode.AUDIO_RATE_TOO_LOW),
        (file(np.zeros(72_000)), ErrorCode.AUDIO_SILENT),
        (file(speech(3) * 0.01), ErrorCode.AUDIO_TOO_QUIET),
        (file(np.clip(speech(3) * 20, -1, 1)), ErrorCode.AUDIO_CLIPPED),
        (file(np.concatenate([speech(0.5), np.zeros(72_000)])), ErrorCode.AUDIO_SILENT),
        (file(np.full(72_000, np.nan), subtype="FLOAT"), ErrorCode.AUDIO_SILENT),
    ],
)
def test_a_recording_that_cannot_be_used_is_refused_with_its_reason(data, code):
    with pytest.raises(StagewaveError) as caught:
        read_prompt(data, "file")
    assert (caught.value.code, caught.value.field) == (code, "file")


@pytest.mark.parametrize(
    "data",
    [
        file(speech(4)),
        file(speech(4, 16_000), 16_000),
        file(speech(4, 44_100), 44_100, "FLAC"),
        file(speech(4, 44_100), 44_100, "MP3"),
        file(speech(4, 48_000), 48_000, "OGG", subtype="OPUS"),
        file(np.stack([speech(4), speech(4)], 1)),
        m4a(speech(4, 48_000)),
    ],
    ids=["wav", "wav 16k", "flac", "mp3", "opus", "stereo", "m4a"],
)
def test_usual_formats_become_one_form_with_the_same_sound(data):
    prompt = read_prompt(data, "file")
    heard, rate_hz = soundfile.read(io.BytesIO(prompt.wav), dtype="float32")
    assert rate_hz == PROMPT_RATE_HZ and heard.ndim == 1
    assert prompt.duration_s == pytest.approx(4, abs=0.1) and len(heard) / rate_hz == pytest.approx(
        4, abs=0.1
    )
    assert np.abs(heard).max() == pytest.approx(0.3 * 2.1 / 2, rel=0.1)
    assert prompt.warnings == ()


def test_a_length_that_is_not_recommended_is_taken_with_a_warning():
    for seconds in (2.0, 2.5, 12.0, 16.9):
        (warning,) = read_prompt(file(speech(seconds)), "file").warnings
        assert f"{seconds:.1f} s" in warning
    for seconds in (3.0, 10.0):
        assert read_prompt(file(speech(seconds)), "file").warnings == ()


def test_a_deploy_may_take_shorter_ones_only():
    with pytest.raises(StagewaveError, match="10 s") as caught:
        read_prompt(file(speech(10.5)), "file", longest_s=10.0)
    assert caught.value.code is ErrorCode.AUDIO_TOO_LONG


def test_the_same_recording_gives_the_same_bytes_whatever_its_container():
    samples = (speech(3) * 32767).astype(np.int16)
    wav, flac = (read_prompt(file(samples, form=form), "file") for form in ("WAV", "FLAC"))
    assert wav == flac
