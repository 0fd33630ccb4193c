from __future__ import annotations

import numpy as np
import pytest

from stage_pipeline.audio.resampler import Resampler
from stage_pipeline.stages import Float32Wave

from .recordings import speech

PAIRS = [(48_000, 16_000), (44_100, 16_000), (44_099, 16_000), (8000, 16_000), (22_050, 24_000)]


def resample(wave: Float32Wave, in_hz: int, out_hz: int, block: int) -> Float32Wave:
    resampler = Resampler(in_hz, out_hz)
    blocks = [resampler.feed(wave[start : start + block]) for start in range(0, len(wave), block)]
    return np.concatenate([*blocks, resampler.finish()])


@pytest.mark.parametrize(("in_hz", "out_hz"), PAIRS)
def test_the_cut_of_the_blocks_makes_no_difference_to_any_sample(in_hz: int, out_hz: int) -> None:
    whole = resample(speech(), in_hz, out_hz, len(speech()))
    for block in (1000, 4097):
        assert np.array_equal(resample(speech(), in_hz, out_hz, block), whole)


@pytest.mark.parametrize(("in_hz", "out_hz"), PAIRS)
@pytest.mark.parametrize("samples", [1, 10, 60, 100, 999, 48_000])
def test_the_length_is_kept(in_hz: int, out_hz: int, samples: int) -> None:
    resampled = resample(np.ones(samples, np.float32), in_hz, out_hz, 500)
    assert abs(len(resampled) - samples * out_hz / in_hz) <= 1


@pytest.mark.parametrize(("in_hz", "out_hz"), PAIRS)
def test_a_tone_stays_the_same_tone_in_the_same_place(in_hz: int, out_hz: int) -> None:
    tone = np.float32(0.5 * np.sin(2 * np.pi * 1000 * np.arange(in_hz) / in_hz))
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(out_hz) / out_hz)
    error = resample(tone, in_hz, out_hz, 4096)[200 : out_hz - 200] - expected[200:-200]
    assert np.abs(error).max() < 1e-4


def test_a_tone_that_the_lower_rate_cannot_hold_is_gone() -> None:
    tone = np.float32(0.5 * np.sin(2 * np.pi * 10_000 * np.arange(48_000) / 48_000))
    assert np.abs(resample(tone, 48_000, 16_000, 4096)[200:-200]).max() < 1e-4


def test_equal_rates_pass_the_samples_through() -> None:
    assert np.array_equal(resample(speech(), 16_000, 16_000, 777), speech())


def test_nothing_in_is_nothing_out() -> None:
    assert len(resample(np.zeros(0, np.float32), 48_000, 16_000, 1)) == 0
