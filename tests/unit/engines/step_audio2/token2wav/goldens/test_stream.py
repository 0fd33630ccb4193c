"""Windows of a stream against the official chunks: all cases, their caches at the end, and their sound."""

import pytest
import torch

from stage_pipeline.engines.step_audio2.token2wav.flow_window import FlowWindows, Window
from stage_pipeline.engines.step_audio2.token2wav.stream_decoder import StreamDecoder, StreamWindow
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import ANCHOR_FRAMES, StreamSlots

TOLERANCE = 1e-4
# More than any case here is long: nothing is ever forgotten.
UNPRUNED = 152 + 350

CASES = [
    "plain92", "last1", "last2", "last3", "single1", "single3", "single20", "single27",
    "stream163", "unpruned163",
]  # fmt: skip


@pytest.fixture(scope="module")
def slots(flow):
    return StreamSlots(flow.config, flow.solver.steps, 2, UNPRUNED, torch.float32, torch.device("cpu"))


def windows(case, tokens):
    """The official cut: each chunk's tokens, how many of them are voiced, and whether it is the last."""
    sizes = case["chunk_sizes"]
    for index, size in enumerate(sizes):
        last = index == len(sizes) - 1
        yield tokens[25 * index : 25 * index + size], size if last else 25, last


@pytest.mark.parametrize("name", CASES)
def test_each_window_gives_the_official_mel(flow, slots, caches, cases, golden, close_to, name):
    mels = FlowWindows(flow, slots)
    tokens = golden("flow", "tokens")[0].tolist()
    stream = slots.take(caches, kept=None if cases[name]["pruned"] else UNPRUNED)
    try:
        for index, (fed, voiced, _) in enumerate(windows(cases[name], tokens)):
            window = Window(stream, fed, voiced)
            shape = mels.shape([window])
            packed = mels.pack([window], shape, rows=1)
            mel = mels.solve(packed, mels.encode(packed, shape))[:, : 2 * voiced].transpose(1, 2)
            stream.advance(voiced)
            stored = f"{name}_chunk{index}_mel"
            if name != "unpruned163" or index >= 4:  # before that it is stream163
                close_to(mel, golden("flow", stored), TOLERANCE)
        if name == "stream163":
            check_caches(slots, stream, golden, close_to)
    finally:
        slots.give_back(stream)


def check_caches(slots, stream, golden, close_to):
    """What is left, put into the official order: newest first, then the prompt's end."""
    ring = ANCHOR_FRAMES + (stream.head + torch.arange(stream.kept)) % stream.ring
    order = torch.cat([ring, torch.arange(ANCHOR_FRAMES)])
    lanes = [stream.slot, stream.slot + slots.lanes]
    keys = slots.step_keys[[0, 9]][:, :, lanes][:, :, :, order]
    keys = keys.permute(0, 1, 2, 5, 3, 4, 6).flatten(5)
    stored = golden("flow", "stream163_final_estimator_att_cache_t0_t9_every16")
    close_to(keys[..., ::16, :], stored, TOLERANCE)
    ends = slots.step_ends[[0, 9]][:, :, :, lanes].permute(0, 1, 3, 2, 5, 4).flatten(3, 4)
    close_to(ends, golden("flow", "stream163_final_estimator_cnn_cache_t0_t9"), TOLERANCE)


@pytest.mark.parametrize(
    ("name", "stored"), [("stream163", "stream"), ("last3", "last3"), ("single1", "single1")]
)
def test_each_window_gives_the_official_sound(
    flow, vocoder, golden_noise, caches, cases, golden, close_to, name, stored
):
    decoder = StreamDecoder(flow, vocoder, golden_noise, 1, 152, graphs=False)
    stream = decoder.begin(caches)
    total = 0
    for index, (fed, _, last) in enumerate(windows(cases[name], golden("flow", "tokens")[0].tolist())):
        (wave,) = decoder.step([StreamWindow(stream, 100, fed, last)])
        # Officially cut off, not rounded.
        pcm = (torch.from_numpy(wave).clamp(-1, 1) * 32767).to(torch.int16)
        close_to(pcm, golden("hift", f"{stored}_chunk{index}_pcm"), 3)
        total += len(wave)
    assert total == 960 * cases[name]["n_tokens"]
