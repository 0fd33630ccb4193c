"""The tiny checkpoint has the official names, and the full one the official shapes."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors import safe_open

from stage_pipeline.engines.step_audio2.thinker.audio_tower import Adapter, Encoder, TowerSize
from stage_pipeline.engines.step_audio2.thinker.random_checkpoint import SPECIAL_IDS, THINKER_SIZES


@pytest.fixture(scope="module")
def official(goldens):
    """Every tensor of the real model and its shape, ``{i}`` written out."""
    stored = json.loads((goldens / "real_shapes.json").read_text("utf-8"))["Thinker safetensors"]
    shapes = {}
    for name, shape in stored["tensors"].items():
        if isinstance(shape, list):
            shapes[name] = shape
        else:
            shapes |= {name.replace("{i}", str(at)): shape["shape"] for at in range(shape["count"])}
    return shapes


@pytest.fixture(scope="module")
def stored(tiny_checkpoint):
    index = json.loads((tiny_checkpoint / "model.safetensors.index.json").read_text("utf-8"))
    shapes = {}
    for file in set(index["weight_map"].values()):
        with safe_open(tiny_checkpoint / file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 -- it is no mapping
                assert index["weight_map"][name] == file
                shapes[name] = opened.get_slice(name).get_shape()
    assert shapes.keys() == index["weight_map"].keys()
    return shapes


def test_its_tensors_have_the_official_names(official, stored):
    def kinds(names):
        return {re.sub(r"\.\d+\.(?!weight|bias)", ".{i}.", name) for name in names}

    assert kinds(stored) == kinds(official)
    assert all(len(shape) == len(official[name]) for name, shape in stored.items())


def test_the_audio_tower_has_the_official_shapes(official):
    full = THINKER_SIZES["full"]
    size = TowerSize(128, 1500, full.audio_hidden, full.audio_heads, full.audio_layers, full.hidden, 3, 2)
    with torch.device("meta"):
        tower = torch.nn.ModuleDict({"encoder": Encoder(size), "adapter": Adapter(size)})
    ours = {name: list(tensor.shape) for name, tensor in tower.state_dict().items()}
    assert ours == {
        name: shape for name, shape in official.items() if name.startswith(("encoder.", "adapter."))
    }


def test_its_special_tokens_have_the_official_numbers(goldens, tokenizer):
    facts = json.loads((goldens / "facts.json").read_text("utf-8"))["token_ids"]
    for token, number in SPECIAL_IDS.items():
        assert tokenizer.token_to_id(token) == number
        assert facts[token]["id"] in (number, None)
        assert tokenizer.encode(f"a{token}b", add_special_tokens=False).ids[1:-1] == [number]
    assert tokenizer.token_to_id("<audio_6561>") == facts["<audio_0>"]["id"] + 6561
    assert tokenizer.decode(tokenizer.encode("Grüße, 世界!").ids) == "Grüße, 世界!"


def test_the_same_seed_writes_the_same_weights(tiny_checkpoint, tmp_path):
    from stage_pipeline.engines.step_audio2.thinker.random_checkpoint import write_thinker

    write_thinker(tmp_path, "tiny")
    for file in sorted(path.name for path in tmp_path.iterdir()):
        assert (tmp_path / file).read_bytes() == (tiny_checkpoint / file).read_bytes(), file
