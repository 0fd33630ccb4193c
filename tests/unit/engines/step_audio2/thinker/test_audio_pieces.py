"""The 25 s rule and the counts, against the official ones for every length."""

from __future__ import annotations

import json

import pytest
import torch

from stage_pipeline.engines.step_audio2.thinker.audio_pieces import (
    PIECE_SAMPLES,
    mel_frames,
    patches,
    piece_mel,
    piece_patches,
    pieces,
    prompt_ids,
)


@pytest.fixture(scope="module")
def counts(goldens):
    return json.loads((goldens / "audio_token_counts.json").read_text("utf-8"))


def test_every_length_has_the_official_number_of_patches(counts):
    assert [patches(frames) for frames in range(2, 3001)] == counts["official_by_T_from_2_to_3000"]
    for row in counts["rows"]:
        assert mel_frames(row["samples"]) == row["mel_frames_T"]
        assert patches(row["mel_frames_T"]) == row["official"]


def test_a_wave_is_cut_every_25_seconds(counts):
    for samples, expected in counts["pieces_25s"].items():
        cut = pieces(torch.zeros(int(samples)))
        assert [len(piece) for piece in cut] == [piece["samples"] for piece in expected]
        assert piece_patches(int(samples)) == tuple(piece["audio_patch"] for piece in expected)


@pytest.mark.parametrize("samples", [1, 160, 161, 320, 321, 16_000, 22_500, PIECE_SAMPLES])
def test_a_log_mel_has_the_frames_that_were_counted(samples):
    assert piece_mel(torch.randn(samples)).shape == (128, mel_frames(samples))


def test_a_tail_of_320_samples_has_nothing_between_its_marks():
    full = [1, *[2] * 313, 3]
    assert prompt_ids(PIECE_SAMPLES + 320, 1, 2, 3) == [*full, 1, 3]
    assert prompt_ids(PIECE_SAMPLES + 321, 1, 2, 3) == [*full, 1, 2, 3]
    assert prompt_ids(320, 1, 2, 3) == [1, 3]
    assert prompt_ids(0, 1, 2, 3) == []
    assert pieces(torch.zeros(0)) == ()
