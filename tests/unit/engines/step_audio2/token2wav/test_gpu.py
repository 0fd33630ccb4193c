"""On a GPU: the kernel, the graphs and the batches give what the plain path on a CPU gives.

    python -m pytest --confcutdir=tests/unit/engines/step_audio2 -m gpu tests/unit/engines/step_audio2

The checkpoint is the tiny one with random weights; five times the tolerances that hold on a CPU.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("exact_products"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

GOLDENS = Path(__file__).parents[4] / "goldens"


def tokens_of(seed, count):
    return tuple(np.random.RandomState(seed).randint(0, 6561, count).tolist())


def streamed(engine, seed, count):
    tokens, consumed, final, pieces = tokens_of(seed, count), 0, False, []
    stream = engine.open("default", seed)
    while not final:
        window = engine.chunk_policy.next_window(tokens, consumed, True)
        pieces += list(stream.feed(tokens[window.start : window.stop], window.final))
        consumed, final = window.consumed, window.final
    stream.close()
    return np.concatenate(pieces)


def whole(engine, seed, count):
    return np.concatenate(list(engine.open("default", seed).feed(tokens_of(seed, count), True)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 2e-3)])
def test_the_kernel_attends_in_the_slots_as_torch_does_to_copies(dtype, tolerance):
    from stage_pipeline.engines.step_audio2.token2wav.slot_attention import slot_attention

    generator = torch.Generator("cuda").manual_seed(1)
    batch, frames, heads, width, slots, keys = 5, 50, 4, 64, 9, 333
    draw = {"generator": generator, "device": "cuda", "dtype": torch.float32}
    query = torch.randn(batch, frames, heads, width, **draw).to(dtype)
    pool = torch.randn(slots, keys, 2, heads, width, **draw).to(dtype)
    lanes = torch.tensor([3, 0, 8, 5, 1], device="cuda")
    mask = torch.zeros(batch, 1, 1, keys, device="cuda", dtype=dtype)
    mask[:, :, :, 200:] = float("-inf")
    mask[2, :, :, :150] = float("-inf")
    ours = slot_attention(query, pool, lanes, mask)
    found = pool[lanes].float()
    theirs = torch.nn.functional.scaled_dot_product_attention(
        query.float().transpose(1, 2),
        found[:, :, 0].transpose(1, 2),
        found[:, :, 1].transpose(1, 2),
        mask.float(),
    ).transpose(1, 2)
    assert (ours.float() - theirs).abs().max().item() < tolerance


@pytest.mark.parametrize("way", [streamed, whole])
def test_captured_graphs_give_what_the_plain_path_gives(engine, way):
    plain = engine(device="cuda", graphs=False, compile=False, streams=2)
    captured = engine(device="cuda", graphs=True, compile=False, streams=2)
    captured.warm_up()
    for seed, count in ((1, 53), (2, 28), (3, 7), (4, 130)):
        ours, theirs = way(captured, seed, count), way(plain, seed, count)
        assert ours.shape == theirs.shape == (960 * count,)
        assert np.abs(ours - theirs).max() < 1e-5


@pytest.mark.parametrize("count", [20, 163])
def test_the_mel_is_the_official_one(golden, golden_noise, voice, close_to, count):
    from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_flow
    from stage_pipeline.engines.step_audio2.token2wav.flow import Flow
    from stage_pipeline.engines.step_audio2.token2wav.voices import on_device

    config, weights = load_flow(GOLDENS)
    with torch.inference_mode():
        flow = Flow(weights.to("cuda"), config, golden_noise.flow(config.mels))
        tokens = golden("flow", "tokens")[0, :count].long().to("cuda")
        (mel,) = flow.whole([on_device(voice, torch.device("cuda"))], [tokens])
    close_to(mel.T[None].cpu(), golden("flow", f"offline_mel_{count}"), 5e-4)


def test_a_given_source_gives_the_official_wave(golden, close_to):
    from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_hift

    with torch.inference_mode():
        vocoder = load_hift(GOLDENS).to("cuda")
        mel = golden("hift", "offline_mel").transpose(1, 2).to("cuda")
        stored = golden("hift", "offline_source_zero")[:, 0]
        source = vocoder.source(mel, torch.zeros(1, 19200, 9, device="cuda"))
        wave = vocoder.decode(mel, stored.to("cuda"))
    close_to(wave.cpu(), golden("hift", "offline_wav_zero"), 5e-6)
    close_to(source.cpu(), stored, 5e-3)
