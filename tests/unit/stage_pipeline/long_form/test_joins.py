"""Utterances joined to one sound: no click, the right pause, and no sample changed that need not be."""

from __future__ import annotations

import numpy as np

from stage_pipeline.long_form.joins import Joins
from stage_pipeline.stages import Float32Wave

RATE_HZ = 24_000


def loud(samples: int) -> Float32Wave:
    return np.full(samples, 0.5, np.float32)


def test_one_utterance_comes_out_as_it_went_in() -> None:
    joins = Joins(RATE_HZ)
    wave = np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.float32)
    sizes = (1, 7, 100, 960, 3932)
    parts = np.split(wave, np.cumsum(sizes)[:-1])
    out = [*(joins.add(part) for part in parts), joins.finish()]
    np.testing.assert_array_equal(np.concatenate(out), wave)


def test_between_two_the_sound_falls_to_silence_and_rises_again() -> None:
    joins = Joins(RATE_HZ)
    out = np.concatenate(
        [joins.add(loud(4800)), joins.join(200), joins.add(loud(4800)), joins.add(loud(50)), joins.finish()]
    )
    assert len(out) == 4800 + 4800 + 4850
    assert np.abs(np.diff(out)).max() < 0.01
    assert (out[4800:9600] == 0).all()
    assert out[0] == out[-1] == 0.5


def test_an_utterance_shorter_than_the_fade_is_no_click_either() -> None:
    joins = Joins(RATE_HZ)
    out = np.concatenate([joins.add(loud(20)), joins.join(0), joins.add(loud(30)), joins.join(0)])
    assert len(out) == 50
    assert out[19] == out[20] == 0


def test_silence_leads_to_the_place_where_an_utterance_belongs() -> None:
    joins = Joins(RATE_HZ)
    lead = np.concatenate(list(joins.until(2500)))
    assert len(lead) == 60_000
    spoken = np.concatenate([joins.add(loud(48_000)), joins.join(0)])
    assert len(spoken) == 48_000
    assert list(joins.until(3000)) == []  # it is past: what follows comes at once, and over nothing
    assert sum(len(wave) for wave in joins.until(5000)) == 12_000
