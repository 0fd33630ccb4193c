"""The engine that computes nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.load import load_thinker, load_token2wav
from stage_pipeline.engines.noop.token2wav import SAMPLES_PER_TOKEN, tone
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.messages import wave_to_pcm16
from stage_pipeline.stages import GenerateRequest, Task, Thinker
from tests.unit.engines.conftest import deploy_config


@pytest.fixture
def noop(tmp_path: Path) -> Thinker:
    return load_thinker(deploy_config("noop"), tmp_path)


def test_as_many_tokens_as_the_text_asks_for(noop: Thinker) -> None:
    deltas = list(noop.generate(GenerateRequest("a", Task.TTS, text="tokens=50 delay_ms=1 please")))

    assert [token for delta in deltas for token in delta.tokens] == list(range(50))
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.audio_tokens == 50


def test_an_engine_that_hangs_holds_up_all_that_runs_in_it(noop: Thinker) -> None:
    hangs = noop.generate(GenerateRequest("a", Task.TTS, text="tokens=2 hang_ms=300"))
    beside = noop.generate(GenerateRequest("b", Task.TTS, text="tokens=50 delay_ms=1"))
    next(beside)
    next(hangs)
    hanging = threading.Thread(target=lambda: list(hangs))
    began = time.monotonic()
    hanging.start()
    time.sleep(0.05)
    list(beside)
    assert time.monotonic() - began > 0.25
    hanging.join()


def test_a_new_attempt_goes_on_after_the_last_token(noop: Thinker) -> None:
    request = GenerateRequest("a", Task.TTS, text="tokens=50", prior_tokens=tuple(range(20)))

    tokens = [token for delta in noop.generate(request) for token in delta.tokens]

    assert tokens == list(range(20, 50))


def test_recognition_answers_with_the_duration(noop: Thinker) -> None:
    audio = np.zeros(24_000, np.float32)

    deltas = list(noop.generate(GenerateRequest("a", Task.ASR, audio=audio)))

    assert "".join(delta.text for delta in deltas) == "1.500 seconds"
    assert not any(delta.tokens for delta in deltas)


def test_an_abort_is_seen_in_the_middle_of_a_delay(noop: Thinker) -> None:
    threading.Timer(0.1, noop.abort, args=("a",)).start()

    began = time.perf_counter()
    deltas = list(noop.generate(GenerateRequest("a", Task.TTS, text="tokens=5 delay_ms=10000")))

    assert time.perf_counter() - began < 0.15
    assert deltas == []


def test_windows_with_lookahead_give_exactly_960_samples_a_token_in_order(
    noop: Thinker, tmp_path: Path
) -> None:
    token2wav = load_token2wav(deploy_config("noop"), tmp_path)
    tokens = tuple(range(73))
    stream = token2wav.open("default", seed=1)
    waves = []
    consumed, final = 0, False
    while not final:
        window = token2wav.chunk_policy.next_window(tokens, consumed, finished=True)
        assert window is not None
        waves.extend(stream.feed(tokens[window.start : window.stop], window.final))
        consumed, final = window.consumed, window.final

    wave = np.concatenate(waves)

    assert len(wave) == 73 * SAMPLES_PER_TOKEN
    assert np.array_equal(wave, np.concatenate([tone(token, token) for token in tokens]))


def test_a_token_lost_doubled_or_moved_changes_the_samples() -> None:
    heard = {wave_to_pcm16(tone(token, position)) for token in range(20) for position in range(20)}

    assert len(heard) == 400


def test_unknown_voices_and_missing_engines_are_typed(tmp_path: Path) -> None:
    token2wav = load_token2wav(deploy_config("noop", voices={"a": "0"}), tmp_path)
    with pytest.raises(StagewaveError) as raised:
        token2wav.open("default", seed=1)
    assert raised.value.code is ErrorCode.VOICE_UNKNOWN

    with pytest.raises(DeployError, match="voices.slow"):
        load_token2wav(deploy_config("noop", voices={"slow": "x"}), tmp_path)
    pytest.importorskip("torch", reason="Token2Wav of Step-Audio2 needs torch")
    with pytest.raises(DeployError, match="no default voice"):
        load_token2wav(deploy_config("step_audio2", model_dir=str(tmp_path / "nowhere")), tmp_path)
