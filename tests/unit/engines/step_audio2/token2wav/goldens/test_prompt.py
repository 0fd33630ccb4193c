"""Prompt preparation against the official features of one 22.05 kHz stereo wav."""

import soundfile
import torch

from stage_pipeline.engines.step_audio2.resample import resample
from stage_pipeline.engines.step_audio2.spectra import prompt_mel, speaker_fbank, tokenizer_mel
from stage_pipeline.engines.step_audio2.token2wav.prompt import PromptModels, PromptWave, fitted
from stage_pipeline.engines.step_audio2.token2wav.voices import read_prompt


def test_the_prompt_is_resampled_as_officially(goldens, golden, close_to):
    samples, rate_hz = soundfile.read(goldens / "prompt_22k_stereo.wav", dtype="float32", always_2d=True)
    samples = torch.from_numpy(samples)
    close_to(resample(samples[:, 0].contiguous(), rate_hz, 16_000), golden("prompt", "wav16k_ch0"), 1e-5)
    close_to(resample(samples.mean(1), rate_hz, 24_000), golden("prompt", "wav24k_mono")[0], 1e-5)


def test_the_tokenizer_hears_the_official_log_mel(golden, close_to):
    close_to(tokenizer_mel(golden("prompt", "wav16k_ch0")), golden("prompt", "s3_log_mel"), 1e-4)


def test_the_flow_sees_the_official_prompt_mel(golden, close_to):
    mel = prompt_mel(golden("prompt", "wav24k_mono")[0])
    close_to(mel, golden("prompt", "prompt_mel_unpadded"), 1e-4)
    close_to(fitted(mel, 152)[None], golden("prompt", "prompt_mel"), 1e-4)


def test_the_speaker_is_heard_through_the_official_fbank(golden, close_to):
    close_to(speaker_fbank(golden("prompt", "wav16k_ch0")), golden("prompt", "fbank_centred"), 1e-3)


def test_tokens_and_embedding_come_out_as_officially(goldens, golden, close_to):
    models = PromptModels(goldens / "token2wav")
    wave = golden("prompt", "wav16k_ch0")
    assert models.tokens(wave).tolist() == golden("prompt", "prompt_tokens")[0].tolist()
    close_to(models.embedding(wave)[None], golden("prompt", "spk_emb"), 1e-3)


def test_a_wav_file_becomes_the_official_voice(goldens, golden, close_to):
    prompt = read_prompt((goldens / "prompt_22k_stereo.wav").read_bytes())
    assert isinstance(prompt, PromptWave)
    voice = PromptModels(goldens / "token2wav").prepare(prompt)
    assert voice.tokens.tolist() == golden("prompt", "prompt_tokens")[0].tolist()
    # Through the resampler: where the mel is near its floor, a rounding of 1e-6 in the wave is 1e-4 in it.
    close_to(voice.mel, golden("prompt", "prompt_mel")[0], 5e-4)
    close_to(voice.embedding, golden("prompt", "spk_emb")[0], 1e-3)
