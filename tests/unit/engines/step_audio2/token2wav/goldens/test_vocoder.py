"""The vocoder against the official one, from the pitch to the wave."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.hift import Lengths
from stage_pipeline.engines.step_audio2.token2wav.whole_decoder import Utterance, WholeDecoder


def drawn(seed, samples):
    noise = np.random.RandomState(seed).standard_normal((1, samples, 9)).astype(np.float32)
    return torch.from_numpy(noise)


def pitch(vocoder, mel):
    return vocoder.f0_predictor(mel.transpose(1, 2), Lengths(None))


@pytest.fixture
def mel(golden):
    return golden("hift", "offline_mel").transpose(1, 2)


def test_the_pitch_is_the_official_one(vocoder, mel, golden, close_to):
    close_to(pitch(vocoder, mel), golden("hift", "offline_f0"), 2e-3)


@pytest.mark.parametrize(
    ("name", "noise"), [("zero", torch.zeros(1, 19200, 9)), ("det0", drawn(7000, 19200))]
)
def test_a_whole_mel_gives_the_official_source_and_wave(vocoder, mel, golden, close_to, name, noise):
    stored = golden("hift", f"offline_source_{name}")[:, 0]
    source = vocoder.source(mel, noise)
    close_to(source, stored, 1e-3)
    close_to(vocoder.decode(mel, stored), golden("hift", f"offline_wav_{name}"), 1e-6)
    close_to(vocoder.decode(mel, source), golden("hift", f"offline_wav_{name}"), 5e-5)


def test_a_shorter_item_of_a_batch_gives_the_official_wave(vocoder, mel, golden, close_to):
    longer = functional.pad(torch.cat([mel, mel.flip(1)]), (0, 0, 0, 9))
    longer[1, 40:] = 1.0
    frames = torch.tensor([40, 49])
    noise = functional.pad(drawn(7000, 19200), (0, 0, 0, 9 * 480)).repeat(2, 1, 1)
    noise[:, 19200:] = 2.0
    source = vocoder.source(longer, noise, frames)
    wave = vocoder.decode(longer, source, frames)
    close_to(wave[:1, :19200], golden("hift", "offline_wav_det0"), 5e-5)
    close_to(wave[1:], vocoder.decode(longer[1:], source[1:]), 1e-6)


def test_a_given_source_gives_the_official_wave(vocoder, golden, close_to):
    mel = golden("hift", "decode_const_source_mel").transpose(1, 2)
    source = 0.1 * torch.sin(2 * math.pi * 150 * torch.arange(5760) / 24000)[None]
    close_to(vocoder.decode(mel, source), golden("hift", "decode_const_source"), 1e-6)


@pytest.mark.parametrize("index", range(7))
def test_each_window_of_a_stream_gives_the_official_pitch_source_and_wave(vocoder, golden, close_to, index):
    mels = [golden("flow", f"stream163_chunk{index}_mel")]
    if index:
        mels.insert(0, golden("flow", f"stream163_chunk{index - 1}_mel")[:, :, -8:])
    mel = torch.cat(mels, dim=2).transpose(1, 2)
    close_to(pitch(vocoder, mel), golden("hift", f"stream_chunk{index}_f0"), 2e-3)
    if index not in (0, 1, 2, 6):  # the others are not stored
        return
    stored = golden("hift", f"stream_chunk{index}_source")[:, 0]
    source = vocoder.source(mel, drawn(7100 + index, stored.shape[1]))
    behind = 3840 if index else 0  # before that it is the window before's
    close_to(source[:, behind:], stored[:, behind:], 1e-3)
    close_to(vocoder.decode(mel, stored), golden("hift", f"stream_chunk{index}_hift_out"), 1e-6)


def test_a_whole_utterance_sounds_as_officially(flow, vocoder, golden_noise, voice, golden, close_to):
    tokens = golden("flow", "tokens")[0, :20].tolist()
    (wave,) = WholeDecoder(flow, vocoder, golden_noise).voice([Utterance(voice, 0, tokens)])
    close_to(torch.from_numpy(wave)[None], golden("hift", "offline_wav_det0"), 5e-5)
