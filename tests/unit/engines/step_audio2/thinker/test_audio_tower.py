"""The audio tower against what the official implementation computes with the goldens' tiny weights."""

from __future__ import annotations

import json

import pytest
import torch

from stage_pipeline.engines.step_audio2.thinker.audio_pieces import (
    heard_frames,
    patches,
    piece_mel,
    together,
)
from stage_pipeline.engines.step_audio2.thinker.audio_tower import Adapter, Encoder, TowerSize, hear

# Where in the prompt's wave the three clips lie.
CLIPS = {"A": slice(0, None), "B": slice(4000, 26_500), "C": slice(9000, 30_937)}


@pytest.fixture(scope="module")
def tower(goldens):
    """``hear`` with the weights of the goldens, moved to a dtype and device."""
    return golden_tower(goldens)


def golden_tower(goldens, device="cpu", dtype=torch.float32):
    from safetensors.torch import load_file

    stored = json.loads((goldens / "audio_tower_tiny.json").read_text("utf-8"))
    config = stored["audio_encoder_config"]
    size = TowerSize(
        mels=config["n_mels"],
        context=config["n_audio_ctx"],
        width=config["n_audio_state"],
        heads=config["n_audio_head"],
        layers=config["n_audio_layer"],
        output=config["llm_dim"],
        adapter_kernel=config["kernel_size"],
        adapter_stride=config["adapter_stride"],
        adapter_hidden=stored["adapter_hidden"],
    )
    parts = torch.nn.ModuleDict({"encoder": Encoder(size), "adapter": Adapter(size)})
    parts.load_state_dict(load_file(goldens / "audio_tower_tiny.safetensors"))
    parts.to(device, dtype).requires_grad_(False)

    def heard(*requests):
        """Of each request, the mels of its pieces."""
        return hear(
            parts["encoder"],
            parts["adapter"],
            [(together(mels), [mel.shape[1] for mel in mels]) for mels in requests],
        )

    heard.encoder = parts["encoder"]
    return heard


def official(golden, name):
    """The embeddings of a batch's pieces, one after the other."""
    output = golden("audio_tower", f"{name}_adapter_out")
    lengths = golden("audio_tower", f"{name}_token_lens").tolist()
    return torch.cat([piece[:length] for piece, length in zip(output, lengths, strict=True)])


@pytest.mark.parametrize("clip", CLIPS)
def test_a_clip_has_the_official_log_mel(golden, close_to, clip):
    wave = golden("prompt", "wav16k_ch0")[CLIPS[clip]]
    close_to(piece_mel(wave), golden("audio_tower", f"mel_{clip}"), 1e-4)


@pytest.mark.parametrize("clip", CLIPS)
def test_a_clip_alone_is_heard_as_officially(tower, golden, close_to, clip):
    mel = golden("audio_tower", f"mel_{clip}")
    encoded = tower.encoder(mel[None], torch.tensor([heard_frames(mel.shape[1])]))
    close_to(encoded, golden("audio_tower", f"single_{clip}_enc_out"), 2e-5)
    close_to(tower([mel])[0], official(golden, f"single_{clip}"), 2e-5)


@pytest.mark.parametrize("pair", ["AB", "AC"])
def test_two_pieces_of_one_request_are_heard_as_officially(tower, golden, close_to, pair):
    mels = [golden("audio_tower", f"mel_{clip}") for clip in pair]
    close_to(tower(mels)[0], official(golden, f"batch_{pair}"), 2e-5)


def test_what_a_request_hears_does_not_depend_on_its_batch_mates(tower, golden, close_to):
    mels = {clip: golden("audio_tower", f"mel_{clip}") for clip in CLIPS}
    loud = mels["C"] + 0.5
    requests = [
        [mels["A"]],
        [mels["B"]],
        [mels["A"], mels["B"]],
        [mels["C"]],
        [loud],
        [mels["A"], mels["C"]],
    ]
    together_heard = tower(*requests)
    for request, heard in zip(requests, together_heard, strict=True):
        close_to(heard, tower(request)[0], 2e-5)
    # In one batch, B would be heard with A's padding, as the official implementation hears it in AB.
    alone, beside_a = official(golden, "single_B"), official(golden, "batch_AB")[38:]
    assert (alone - beside_a).abs().max() > 0.1
    close_to(together_heard[1], alone, 2e-5)


def test_more_pieces_of_one_length_than_a_batch_takes_come_back_in_order(tower, golden, close_to):
    mel = golden("audio_tower", "mel_C")
    requests = [[mel + shift / 10] for shift in range(11)]
    for request, heard in zip(requests, tower(*requests), strict=True):
        close_to(heard, tower(request)[0], 2e-5)


def test_a_piece_too_short_for_a_patch_leaves_nothing_behind(tower, golden, close_to):
    mel = golden("audio_tower", "mel_A")
    assert tower([mel[:, :4]])[0].shape == (0, 96)
    close_to(tower([mel, mel[:, :3]])[0], tower([mel])[0], 2e-5)
    assert tower() == []


def test_as_many_patches_are_heard_as_are_counted(tower, golden):
    mel = golden("audio_tower", "mel_A")
    for frames in (*range(3, 40), 303, 304):
        assert len(tower([mel[:, :frames]])[0]) == patches(frames)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_half_precision_hears_nearly_the_same(goldens, golden, close_to, dtype, tolerance):
    """The official mask of -1e10 has no half-precision form; ours is one of truth values."""
    tower = golden_tower(goldens, dtype=dtype)
    mels = [golden("audio_tower", f"mel_{clip}") for clip in "AB"]
    close_to(tower(mels)[0].float(), official(golden, "batch_AB"), tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.1), (torch.float16, 0.02)]
)
def test_a_gpu_hears_as_a_cpu_does(goldens, golden, close_to, exact_products, dtype, tolerance):
    tower = golden_tower(goldens, "cuda", dtype)
    mels = {clip: golden("audio_tower", f"mel_{clip}") for clip in CLIPS}
    pair, single = tower([mels["A"], mels["B"]], [mels["C"]])
    close_to(pair.float().cpu(), official(golden, "batch_AB"), tolerance)
    close_to(single.float().cpu(), official(golden, "single_C"), tolerance)
