"""Checkpoints load strictly, and run nothing."""

import json
import pickle
import shutil

import pytest
import torch

from stage_pipeline.engines.step_audio2 import make_checkpoint
from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_flow, load_hift
from stage_pipeline.engines.step_audio2.token2wav.flow import FlowWeights
from stage_pipeline.engines.step_audio2.token2wav.flow_config import CheckpointError, read_flow_config
from stage_pipeline.engines.step_audio2.token2wav.hift import HiFT


@pytest.fixture
def model(goldens, tmp_path):
    shutil.copytree(goldens / "token2wav", tmp_path / "token2wav")
    return tmp_path


def changed(model, file, change):
    path = model / "token2wav" / file
    tensors = torch.load(path, weights_only=True)
    change(tensors)
    torch.save(tensors, path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda t: t.pop("encoder.encoders.1.norm_ff.bias"),
            "flow.pt: missing: encoder.encoders.1.norm_ff.bias",
        ),
        (lambda t: t.update(extra=torch.zeros(1)), "flow.pt: not known: extra"),
        (
            lambda t: t.update({"encoder_proj.bias": torch.zeros(81)}),
            r"flow.pt: of another shape: encoder_proj.bias \(81,\) instead of \(80,\)",
        ),
        (
            lambda t: t.update({"encoder_proj.bias": torch.zeros(80, dtype=torch.int32)}),
            "flow.pt: not floating point: encoder_proj.bias",
        ),
    ],
)
def test_a_wrong_tensor_of_the_flow_is_named(model, change, says):
    changed(model, "flow.pt", change)
    with pytest.raises(CheckpointError, match=says):
        load_flow(model)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("generator.conv_post.bias"), "hift.pt: missing: conv_post.bias"),
        (lambda t: t.pop("generator.ups.0.parametrizations.weight.original1"), "missing ups.0.*original1"),
        (lambda t: t.pop("generator.ups.0.parametrizations.weight.original0"), "missing ups.0.*original0"),
        (lambda t: t.update({"generator.x": torch.zeros(1)}), "hift.pt: not known: x"),
        (lambda t: t.clear(), "hift.pt: missing conv_pre"),
    ],
)
def test_a_wrong_tensor_of_the_vocoder_is_named(model, change, says):
    changed(model, "hift.pt", change)
    with pytest.raises(CheckpointError, match=says):
        load_hift(model)


def test_the_vocoder_loads_without_its_prefix_too(model, vocoder):
    path = model / "token2wav/hift.pt"
    stored = torch.load(path, weights_only=True)
    torch.save({name.removeprefix("generator."): tensor for name, tensor in stored.items()}, path)
    assert torch.equal(load_hift(model).conv_pre.weight, vocoder.conv_pre.weight)


def test_a_pickle_that_would_run_code_is_refused(model):
    class Trap:
        def __reduce__(self):
            return (open, (str(model / "trapped"), "w"))

    for file, load in (("flow.pt", load_flow), ("hift.pt", load_hift)):
        (model / "token2wav" / file).write_bytes(pickle.dumps({"x": Trap()}, protocol=2))
        with pytest.raises(CheckpointError, match=f"token2wav/{file}"):
            load(model)
    assert not (model / "trapped").exists()


@pytest.mark.parametrize("file", ["flow.yaml", "flow.pt", "hift.pt"])
def test_a_missing_file_is_named_without_its_folder(model, file):
    (model / "token2wav" / file).unlink()
    with pytest.raises(CheckpointError, match=f"token2wav/{file} is missing") as caught:
        load_flow(model)
        load_hift(model)
    assert str(model) not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("        num_blocks: 3\n", "", "flow.encoder.num_blocks is not a number"),
        ("depth: 2", "depth: two", "flow.decoder.estimator.depth is not a number"),
        ("depth: 2", "depth: 0", "flow.decoder.estimator.depth is not a whole number above 0"),
        ("rel_pos_espnet", "rope", "flow.encoder.pos_enc_layer_type is not rel_pos_espnet"),
        ("in_channels: 320", "in_channels: 240", "flow.decoder.estimator.in_channels is not 320"),
        ("    decoder:", "    coder:", "flow.decoder is missing"),
        ("flow:", "flow: [", "cannot be read"),
    ],
)
def test_a_wrong_key_of_the_yaml_is_named(model, old, new, says):
    path = model / "token2wav/flow.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=says):
        read_flow_config(path)


def test_nothing_that_the_yaml_names_is_imported_or_built(model):
    path = model / "token2wav/flow.yaml"
    mark = model / "built"
    trap = f"    trap: !!python/object/apply:os.mkdir ['{mark}']\n"
    path.write_text(path.read_text() + trap)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_flow_config(path)
    path.write_text(path.read_text().replace(trap, f"    trap: !apply:os.mkdir ['{mark}']\n"))
    assert read_flow_config(path).guidance == 0.7
    assert not mark.exists()


def expanded(tensors):
    """``{i}`` and a count to the names they stand for."""
    for name, shape in tensors.items():
        if isinstance(shape, dict):
            for index in range(shape["count"]):
                yield name.replace("{i}", str(index)), tuple(shape["shape"])
        else:
            yield name, tuple(shape)


def test_the_full_size_has_the_names_and_shapes_of_the_real_model(goldens, tmp_path):
    real = json.loads((goldens / "real_shapes.json").read_text())
    size = make_checkpoint.SIZES["full"]
    (tmp_path / "flow.yaml").write_text(make_checkpoint.flow_yaml(size))
    with torch.device("meta"):
        flow = FlowWeights(read_flow_config(tmp_path / "flow.yaml"))
        vocoder = HiFT(80, size.vocoder_channels, size.pitch_channels)
    shapes = {name: tuple(tensor.shape) for name, tensor in flow.state_dict().items()}
    assert shapes == dict(expanded(real["flow.pt"]["tensors"]))
    stored = make_checkpoint.with_weight_norm(vocoder.state_dict())
    shapes = {name.removeprefix("generator."): tuple(tensor.shape) for name, tensor in stored.items()}
    assert shapes == dict(expanded(real["hift.pt"]["tensors"]))


def test_a_made_checkpoint_speaks_and_is_the_same_each_time(tmp_path):
    from stage_pipeline.engines.step_audio2.token2wav.engine import StepAudio2Token2Wav, Token2WavOptions

    for name in ("one", "two"):
        make_checkpoint.write_token2wav(tmp_path / name, "tiny")
    for file in ("token2wav/flow.yaml", "token2wav/campplus.onnx", "assets/default_female.wav"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    for load in (lambda model: load_flow(model)[1], load_hift):
        ours, again = (load(tmp_path / name).state_dict() for name in ("one", "two"))
        assert all(torch.equal(ours[key], again[key]) for key in ours)
    engine = StepAudio2Token2Wav(tmp_path / "one", tmp_path, {}, {}, Token2WavOptions())
    (wave,) = engine.open("default", 1).feed(tuple(range(40)), True)
    engine.close()
    assert len(wave) == 960 * 40
    assert 1e-3 < abs(wave).max() <= 1
