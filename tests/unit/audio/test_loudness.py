"""Loudness, measured again by the same standard after it was set."""

import numpy as np
import pytest

from stage_pipeline.audio.loudness import LiveGain, LoudnessMeter, WholeGain
from tests.unit.audio.recordings import speech

RATE_HZ = 16_000


def loudness(pcm16: bytes) -> float:
    return LoudnessMeter(RATE_HZ).feed(pcm16)[-1]


def pcm(wave) -> bytes:
    return np.rint(np.clip(wave, -1, 1) * 32767).astype("<i2").tobytes()


@pytest.fixture(scope="module")
def clip():
    return speech()


def whole(target: float, data: bytes) -> bytes:
    gain = WholeGain(target, RATE_HZ, [data[:5000], data[5000:]])
    return gain.feed(data[:9000]) + gain.feed(data[9000:]) + gain.finish()


def live(target: float, data: bytes, block: int = 30_001) -> bytes:
    gain = LiveGain(target, RATE_HZ)
    block -= block % 2
    parts = [gain.feed(data[start : start + block]) for start in range(0, len(data), block)]
    return b"".join(parts) + gain.finish()


def test_the_meter_knows_the_reference_tone():
    """A sine of 997 Hz at -20 dB of full scale in one channel is -23 LUFS."""
    time = np.arange(5 * RATE_HZ) / RATE_HZ
    assert loudness(pcm(0.1 * np.sin(2 * np.pi * 997 * time))) == pytest.approx(-23.0, abs=0.1)


@pytest.mark.parametrize("target", [-30, -23, -16])
@pytest.mark.parametrize("level", [0.3, 1.0])
def test_whole_speech_comes_to_its_target(clip, target, level):
    assert loudness(whole(target, pcm(clip * level))) == pytest.approx(target, abs=0.2)


def test_nothing_is_clipped_on_the_way_up(clip):
    raised = np.frombuffer(whole(-10, pcm(clip)), "<i2")
    assert np.abs(raised.astype(int)).max() <= 0.891 * 32768
    assert loudness(raised.tobytes()) == pytest.approx(-10, abs=2.0)


@pytest.mark.parametrize("target", [-23, -16])
def test_speech_that_is_listened_to_comes_near_it(clip, target):
    assert loudness(live(target, pcm(clip))) == pytest.approx(target, abs=2.0)


def test_the_cut_of_the_blocks_makes_no_difference(clip):
    data = pcm(clip)
    assert len({live(-16, data, block) for block in (1002, 3200, 44_100, len(data))}) == 1
    assert len(live(-16, data)) == len(whole(-16, data)) == len(data)


def test_live_speech_begins_after_400_ms_and_goes_on_without_holding_back(clip):
    gain, data = LiveGain(-16, RATE_HZ), pcm(clip)
    second = 2 * RATE_HZ
    assert gain.feed(data[: second * 39 // 100]) == b""
    assert len(gain.feed(data[second * 39 // 100 : second * 45 // 100])) == second * 4 // 10
    assert len(gain.feed(data[second * 45 // 100 : second])) == second * 6 // 10


def test_silence_stays_silence_and_a_moment_of_sound_stays_as_it_is():
    for samples in (0, 1, 1000, 3 * RATE_HZ):
        assert whole(-16, bytes(2 * samples)) == live(-16, bytes(2 * samples)) == bytes(2 * samples)
    click = pcm(np.full(100, 0.25))
    assert live(-16, click) == click
