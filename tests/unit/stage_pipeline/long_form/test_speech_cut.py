"""Long audio in pieces: all the speech, cut in silence, with its times; and nothing else."""

from __future__ import annotations

from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.recording import Recording, record
from stage_pipeline.long_form.piece import Piece
from stage_pipeline.long_form.speech_cut import cut_speech
from stage_pipeline.long_form.speech_detector import FRAME, SpeechDetector
from stage_pipeline.stages import Float32Wave
from tests.unit.audio.recordings import CLAUSES_S, parted

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Float32Wave:
    """44 seconds of a person who reads, with pauses from half a second up."""
    path = files("moonshine_voice").joinpath("assets", "two_cities.wav")
    with path.open("rb") as file:
        recording = record(file, tmp_path_factory.mktemp("speech") / "wave", limits=DecodeLimits())
    wave = recording.read(0, recording.samples)
    np.testing.assert_array_equal(wave, recording.whole())
    return wave


def cut(tmp_path: Path, wave: Float32Wave, longest_s: float = 25.0, *, timed: bool = False) -> list[Piece]:
    path = tmp_path / "wave"
    wave.astype(np.float32).tofile(path)
    return list(cut_speech(Recording(path, len(wave)), longest_s, timed=timed))


def loudness(wave: Float32Wave) -> float:
    return float(np.sqrt(np.mean(wave**2))) if len(wave) else 0.0


def silence(seconds: float) -> Float32Wave:
    return np.zeros(int(seconds * RATE_HZ), np.float32)


@pytest.mark.parametrize("seconds", [24, 25, 26, 51, 180])
def test_no_piece_is_too_long_and_every_cut_is_in_silence(
    tmp_path: Path, speech: Float32Wave, seconds: int
) -> None:
    wave = np.resize(np.concatenate([speech, silence(0.4)]), seconds * RATE_HZ)
    pieces = cut(tmp_path, wave)

    assert len(pieces) >= -(-seconds // 25)
    if seconds <= 25:
        assert pieces == [Piece(0, len(wave))]
    assert all(0 < piece.stop - piece.start <= 25 * RATE_HZ for piece in pieces)
    assert all(before.stop <= after.start for before, after in pairwise(pieces))
    usual = loudness(wave)
    for piece in pieces[1:]:
        assert loudness(wave[piece.start : piece.start + RATE_HZ // 20]) < usual / 5
    left_out = np.ones(len(wave), bool)
    for piece in pieces:
        left_out[piece.start : piece.stop] = False
    assert loudness(wave[left_out]) < usual / 5


def test_speech_without_a_pause_is_cut_all_the_same(tmp_path: Path, speech: Float32Wave) -> None:
    breathless = np.tile(speech[int(1.3 * RATE_HZ) : int(4.3 * RATE_HZ)], 12)
    pieces = cut(tmp_path, breathless, 5.0)
    assert all(piece.stop - piece.start <= 5 * RATE_HZ for piece in pieces)
    assert sum(piece.stop - piece.start for piece in pieces) > 0.9 * len(breathless)


def test_a_long_silence_is_in_no_piece(tmp_path: Path, speech: Float32Wave) -> None:
    words = speech[int(1.2 * RATE_HZ) : int(8.3 * RATE_HZ)]
    pieces = cut(tmp_path, np.concatenate([silence(20), words, silence(30), words, silence(20)]))
    times = [(piece.start / RATE_HZ, piece.stop / RATE_HZ) for piece in pieces]
    assert np.abs(np.array(times) - [(20, 27.1), (57.1, 64.2)]).max() < 0.5


def test_timed_pieces_begin_where_their_speech_does(tmp_path: Path, speech: Float32Wave) -> None:
    words = speech[int(1.25 * RATE_HZ) : int(8.3 * RATE_HZ)]
    pieces = cut(tmp_path, np.concatenate([silence(3), words, silence(1), words]), timed=True)
    assert [piece.at_ms for piece in pieces] == pytest.approx([3000, 3000 + 7050 + 1000], abs=150)
    assert cut(tmp_path, speech[: 8 * RATE_HZ], timed=True)[0].at_ms is not None


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.003])
@pytest.mark.parametrize("pause_s", [0.5, 1.5, 3.0, 6.0])
def test_what_half_a_second_of_silence_parts_has_each_its_time(
    tmp_path: Path, speech: Float32Wave, pause_s: float, noise: float
) -> None:
    wave, begins_s = parted(speech, RATE_HZ, [pause_s] * len(CLAUSES_S))
    hiss = np.random.default_rng(0).standard_normal(len(wave)) * noise
    pieces = cut(tmp_path, wave + hiss.astype(np.float32), timed=True)
    assert [piece.at_ms for piece in pieces] == pytest.approx([1000 * at_s for at_s in begins_s], abs=30)
    # And all of its speech is in it.
    for piece, begins, (start_s, stop_s) in zip(pieces, begins_s, CLAUSES_S, strict=True):
        assert piece.start / RATE_HZ < begins and begins + stop_s - start_s < piece.stop / RATE_HZ


def music(seconds: int) -> Float32Wave:
    """A melody of plucked strings over chords, with a rhythm of noise."""
    rng = np.random.default_rng(0)
    time_s = np.arange(RATE_HZ // 4) / RATE_HZ
    wave = np.zeros(seconds * RATE_HZ + RATE_HZ)
    for beat in range(4 * seconds):
        for base in (220, 277, 330, 220 * 2 ** (rng.integers(0, 12) / 12) * 2):
            note = sum(np.sin(2 * np.pi * base * k * time_s) / k for k in (1, 2, 3, 4))
            wave[beat * 4000 : beat * 4000 + 4000] += 0.05 * note * np.exp(-6 * time_s)
        wave[beat * 4000 : beat * 4000 + 800] += rng.standard_normal(800) * np.linspace(0.1, 0, 800)
    return wave[: seconds * RATE_HZ].astype(np.float32)


@pytest.mark.parametrize("seconds", [10, 30])
def test_silence_noise_and_music_are_no_speech(tmp_path: Path, seconds: int) -> None:
    rng = np.random.default_rng(1)
    for wave in (
        silence(seconds),
        (rng.standard_normal(seconds * RATE_HZ) * 0.1).astype(np.float32),
        music(seconds),
    ):
        assert cut(tmp_path, wave) == []


def test_speech_is_heard_the_same_whatever_the_blocks(speech: Float32Wave) -> None:
    at_once = SpeechDetector().feed(speech[: 100 * FRAME])
    detector = SpeechDetector()
    parts = [detector.feed(speech[at * FRAME : (at + 7) * FRAME]) for at in range(0, 98, 7)]
    np.testing.assert_allclose(np.concatenate(parts), at_once[:98], atol=1e-5)
