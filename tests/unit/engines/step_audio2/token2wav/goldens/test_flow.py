"""The flow against the official one: whole utterances, and a prompt's caches."""

import pytest
import torch
from torch.nn import functional

from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_flow
from stage_pipeline.engines.step_audio2.token2wav.flow_matching import schedule
from stage_pipeline.engines.step_audio2.token2wav.memory import Blank

TOLERANCE = 1e-4


def official(keys):
    """``[layers, batch, frames, 2, heads, width]`` to ``[layers, batch, heads, frames, 2 * width]``."""
    return keys.permute(0, 1, 4, 2, 3, 5).flatten(4)


def test_the_schedule_and_the_speaker_are_the_official_ones(flow, voice, golden, close_to):
    close_to(schedule(10), golden("flow", "t_span"), 1e-6)
    close_to(flow.speaker(voice.embedding[None]), golden("flow", "spk_proj"), 1e-5)


def test_the_encoder_gives_the_official_frames(flow, voice, golden, close_to):
    ids = torch.cat([voice.tokens, golden("flow", "tokens")[0, :20].long()])[None]
    present = torch.arange(99)[None] < 96
    encoder = flow.weights.encoder
    embeddings = flow.weights.input_embedding(functional.pad(ids, (0, 3)))
    encoded = encoder(embeddings, present, encoder.distances(96, 96), Blank(), Blank())
    close_to(encoded, golden("flow", "encoder_out_20"), TOLERANCE)
    close_to(flow.project(encoded).transpose(1, 2), golden("flow", "mu_20"), TOLERANCE)


def test_the_estimator_gives_the_official_velocity(goldens, flow, voice, golden, close_to):
    # Its own copy: the shared one has its modulations computed, and its weights joined.
    estimator = load_flow(goldens)[1].decoder.estimator
    (modulation,) = estimator.modulations(golden("flow", "t_span")[3:4])
    frames = golden("flow", "mu_20").transpose(1, 2)
    prompt = functional.pad(voice.mel, (0, 0, 0, 40))[None]
    speaker = golden("flow", "spk_proj")[:, None].expand_as(frames)
    x = torch.cat([flow.noise[None, :192], frames, speaker, prompt], dim=-1)
    apart = estimator(x, modulation, Blank())
    close_to(apart.transpose(1, 2), golden("flow", "estimator_out_t3_20"), TOLERANCE)
    estimator.fuse()
    close_to(estimator(x, modulation, Blank()), apart, 1e-5)


@pytest.mark.parametrize("count", [1, 20, 163])
def test_a_whole_utterance_gives_the_official_mel(flow, voice, golden, close_to, count):
    (mel,) = flow.whole([voice], [golden("flow", "tokens")[0, :count].long()])
    close_to(mel.T[None], golden("flow", f"offline_mel_{count}"), TOLERANCE)


def test_utterances_padded_to_one_length_give_the_official_mels(flow, voice, golden, close_to):
    counts = (20, 163, 1)
    tokens = [golden("flow", "tokens")[0, :count].long() for count in counts]
    for count, mel in zip(counts, flow.whole([voice] * 3, tokens), strict=True):
        close_to(mel.T[None], golden("flow", f"offline_mel_{count}"), TOLERANCE)


def test_a_prompt_leaves_the_official_caches(caches, golden, close_to):
    of_tokens, of_frames = official(caches.token_keys[:, None]), official(caches.frame_keys[:, None])
    keys = torch.cat([of_tokens.repeat(1, 1, 1, 2, 1), of_frames])
    close_to(keys[..., ::16, :], golden("flow", "setup_conformer_att_cache_every16"), TOLERANCE)
    ends = torch.cat([caches.lookahead_ends, caches.upsample_ends])
    close_to(ends.T[None], golden("flow", "setup_conformer_cnn_cache"), TOLERANCE)
    keys = torch.stack([official(caches.step_keys[step]) for step in (0, 9)])
    close_to(keys[..., ::16, :], golden("flow", "setup_estimator_att_cache_t0_t9_every16"), TOLERANCE)
    ends = caches.step_ends[[0, 9]].permute(0, 1, 3, 2, 5, 4).flatten(3, 4)
    close_to(ends, golden("flow", "setup_estimator_cnn_cache_t0_t9"), TOLERANCE)
