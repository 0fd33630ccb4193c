"""The arithmetic of the caches, where no golden reaches."""

import numpy as np
import torch

from stage_pipeline.engines.step_audio2.token2wav.flow_window import (
    KEY_COUNTS,
    FlowWindows,
    Window,
    WindowShape,
)
from stage_pipeline.engines.step_audio2.token2wav.noise import Noise
from stage_pipeline.engines.step_audio2.token2wav.stream_decoder import StreamDecoder, StreamWindow
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import (
    LONGEST_TOKENS,
    StreamSlots,
    StreamState,
)


def mel_of(windows, stream, tokens, keys):
    shape = WindowShape(25, keys)
    packed = windows.pack([Window(stream, tokens, 25)], shape, rows=2)
    return windows.solve(packed, windows.encode(packed, shape))[0]


def test_how_many_keys_a_pass_looks_at_changes_nothing(flow, caches):
    tokens = np.random.RandomState(1).randint(0, 6561, 28).tolist()
    mels = []
    for keys in KEY_COUNTS:
        slots = StreamSlots(flow.config, flow.solver.steps, 1, 152, torch.float32, torch.device("cpu"))
        windows = FlowWindows(flow, slots)
        stream = slots.take(caches)
        mel_of(windows, stream, tokens, keys)
        stream.advance(25)
        mels.append(mel_of(windows, stream, tokens, keys))
    for mel in mels[1:]:
        assert (mel - mels[0]).abs().max() < 1e-4


def test_remembered_frames_are_those_of_the_official_cut_list():
    # Newest first, and cut to the first P and the last 100 whenever it is longer than P + 100.
    for prompt in (100, 152, 300, 846):
        stream = StreamState(0, prompt, prompt, prompt // 2)
        listed = [f"prompt {at}" for at in range(prompt)]
        ring = {at: f"prompt {at}" for at in range(prompt)}
        for chunk in range(40):
            anchored = [f"prompt {at}" for at in range(prompt - stream.anchored, prompt)]
            kept = [ring[(stream.head + age) % stream.ring] for age in range(stream.remembered)]
            assert kept + anchored == listed
            new = [f"{chunk} {at}" for at in range(50)]
            stream.advance(25)
            ring |= {(stream.head + at) % stream.ring: frame for at, frame in enumerate(new)}
            listed = new + listed
            if len(listed) > prompt + 100:
                listed = listed[:prompt] + listed[-100:]


def test_a_stream_goes_on_past_the_end_of_the_position_table(flow, vocoder, caches):
    decoder = StreamDecoder(flow, vocoder, Noise(), 1, 152, graphs=False)
    stream = decoder.begin(caches)
    tokens = np.random.RandomState(2).randint(0, 6561, 28).tolist()
    decoder.step([StreamWindow(stream, 0, tokens, False)])
    stream.tokens = LONGEST_TOKENS - 10  # as after 96 windows
    (wave,) = decoder.step([StreamWindow(stream, 0, tokens, False)])
    assert len(wave) == 24_000
    assert np.isfinite(wave).all()
    assert stream.tokens < LONGEST_TOKENS - 400


def test_forgetting_keeps_the_prompt_and_the_newest_in_order(flow, caches):
    slots = StreamSlots(flow.config, flow.solver.steps, 1, 152, torch.float32, torch.device("cpu"))
    stream = slots.take(caches)
    slots.token_keys[:, stream.slot] = torch.arange(slots.token_keys.shape[2])[:, None, None, None]
    slots.frame_keys[:, stream.slot] = torch.arange(slots.frame_keys.shape[2])[:, None, None, None]
    stream.tokens = 2490
    slots.make_room(stream, 10)
    assert stream.tokens == 2490
    slots.make_room(stream, 25)
    assert stream.tokens == 1990
    for keys, rate in ((slots.token_keys, 1), (slots.frame_keys, 2)):
        left = keys[0, stream.slot, : 1990 * rate, 0, 0, 0].int().tolist()
        assert left == [*range(76 * rate), *range(576 * rate, 2490 * rate)]


def test_slots_run_out_and_come_back(flow, caches):
    slots = StreamSlots(flow.config, flow.solver.steps, 1, 152, torch.float32, torch.device("cpu"))
    stream = slots.take(caches)
    assert slots.take(caches) is None
    slots.give_back(stream)
    assert slots.take(caches).slot == stream.slot
