"""Long jobs through real pools: pieces become one sound, whatever the mode and whatever dies on the way."""

from __future__ import annotations

import io
import json
from importlib.resources import files

import numpy as np
import pytest
import soundfile

from stage_pipeline.engines.noop.token2wav import tone
from stage_pipeline.long_form.joins import Joins
from stage_pipeline.stages import Float32Wave, Task
from tests.integration.conftest import NOOP_CONFIG, System
from workers.results import voiced_prefix
from workers.settings import Settings

RATE_HZ = 24_000
SENTENCES = [f"The sentence with the number {number} has tokens={30 + number}." for number in range(8)]


@pytest.fixture(scope="module")
def noop_settings(noop_settings: Settings) -> Settings:
    """Whose engine speaks 60 letters at once."""
    config = NOOP_CONFIG.replace("stage_id: 0,", "stage_id: 0, max_model_len: 60,")
    noop_settings.config[0].write_text(config)
    return noop_settings


def expected() -> Float32Wave:
    """Each sentence an utterance, with the pauses between them."""
    joins, parts = Joins(RATE_HZ), []
    for number in range(len(SENTENCES)):
        parts += [joins.add(tone(token, token)) for token in range(30 + number)]
        parts.append(joins.join(200) if number < len(SENTENCES) - 1 else joins.finish())
    return np.concatenate(parts)


def sound(system: System, job_id: str) -> Float32Wave:
    done = system.wait_success(job_id)
    return soundfile.read(io.BytesIO(system.audio(done)), dtype="float32")[0]


@pytest.mark.parametrize("mode", ["sequential", "async_chunk"])
def test_a_long_text_is_one_sound_to_its_last_sentence(running: System, mode: str) -> None:
    heard = sound(running, running.submit(text=" ".join(SENTENCES), mode=mode).id)
    whole = expected()
    assert len(heard) == len(whole)
    np.testing.assert_allclose(heard, whole, atol=1e-4)


def test_the_first_audio_is_there_as_early_as_for_one_sentence(running: System) -> None:
    slow = [sentence.replace(".", " delay_ms=8.") for sentence in SENTENCES]
    short = running.wait_success(running.submit(text=slow[0], mode="async_chunk").id)
    long = running.wait_success(running.submit(text=" ".join(slow), mode="async_chunk").id)
    assert short.first_audio_at and long.first_audio_at and long.finished_at
    took_s = long.first_audio_at - long.created_at
    assert took_s < short.first_audio_at - short.created_at + 0.5
    assert took_s < (long.finished_at - long.created_at) / 2


def test_a_long_job_goes_on_where_its_worker_died(running: System) -> None:
    text = " ".join(sentence.replace(".", " delay_ms=15.") for sentence in SENTENCES)
    job = running.submit(text=text, mode="async_chunk")
    running.wait_until(
        lambda: sum(chunk.piece_end is not None for chunk in running.backend.tokens.chunks(job.id)) == 3,
        "three sentences are whole",
    )
    running.kill("thinker")
    running.start("thinker")
    np.testing.assert_allclose(sound(running, job.id), expected(), atol=1e-4)
    assert running.job(job.id).attempts == {"thinker": 2, "token2wav": 1}


@pytest.mark.parametrize("mode", ["sequential", "async_chunk"])
def test_a_voice_goes_on_where_its_worker_died(running: System, mode: str) -> None:
    text = " ".join(f"The sentence with the number {n} has tokens=200." for n in range(8))
    job = running.submit(text=text, voice="slow", mode=mode)
    voiced = voiced_prefix(job.id, begun_by=1)
    running.wait_until(lambda: any(running.backend.objects.list(voiced)), "half a minute is kept")
    running.kill("token2wav")
    running.start("token2wav")
    joins, parts = Joins(RATE_HZ), []
    for number in range(8):
        parts += [joins.add(tone(token, token)) for token in range(200)]
        parts.append(joins.join(200) if number < 7 else joins.finish())
    np.testing.assert_allclose(sound(running, job.id), np.concatenate(parts), atol=1e-4)
    assert running.job(job.id).attempts == {"thinker": 1, "token2wav": 2}
    running.wait_until(lambda: not any(running.backend.objects.list(voiced)), "no part is left")


def test_dubbed_speech_stands_where_it_stood(running: System) -> None:
    with files("moonshine_voice").joinpath("assets", "beckett.wav").open("rb") as file:
        wave, rate_hz = soundfile.read(file, dtype="float32")
    quiet = np.zeros(3 * rate_hz, np.float32)
    data = io.BytesIO()
    soundfile.write(data, np.concatenate([quiet, wave, quiet, wave, quiet]), rate_hz, format="WAV")
    job = running.submit_audio(Task.S2ST, data.getvalue(), keep_timing=True)
    heard = sound(running, job.id)

    length_s = len(wave) / rate_hz
    assert len(heard) / RATE_HZ == pytest.approx(9 + 2 * length_s, abs=0.01)
    loud = np.flatnonzero(np.abs(heard) > 0.01) / RATE_HZ
    begins = loud[np.flatnonzero(np.diff(loud, prepend=-1.0) > 0.1)]
    done = running.job(job.id)
    assert done.result
    with running.backend.objects.open(str(done.result["transcript_key"])) as stored:
        transcript = json.loads(b"".join(stored.iter_chunks()))
    starts = [segment["start_s"] for segment in transcript["segments"]]
    # "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better." And again.
    assert len(begins) == len(starts) == 12
    # Its words begin after a margin of silence.
    assert all(0 <= begin - start < 0.4 for begin, start in zip(begins, starts, strict=True))
