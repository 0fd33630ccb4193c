"""Writes a model directory in the official layout with seeded random weights, to test and to measure with.

    python -m stage_pipeline.engines.step_audio2.make_checkpoint --size tiny OUT

``full`` has the sizes of Step-Audio-2-mini (its speed is the real one's), ``tiny`` has few and narrow
layers. What either says is noise.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import soundfile
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from stage_pipeline.engines.step_audio2.spectra import MEL_RATE_HZ
from stage_pipeline.engines.step_audio2.thinker.random_checkpoint import write_thinker
from stage_pipeline.engines.step_audio2.token2wav.checkpoint import FOLDER
from stage_pipeline.engines.step_audio2.token2wav.flow import FlowWeights
from stage_pipeline.engines.step_audio2.token2wav.flow_config import read_flow_config
from stage_pipeline.engines.step_audio2.token2wav.hift import HiFT
from stage_pipeline.engines.step_audio2.token2wav.prompt import EMBEDDING_FILE, TOKENIZER_FILE

_FLOW_YAML = """\
flow: !new:cosyvoice2.flow.flow.CausalMaskedDiffWithXvec
    input_size: {width}
    output_size: 80
    spk_embed_dim: 192
    output_type: mel
    vocab_size: 6561
    encoder: !new:cosyvoice2.transformer.upsample_encoder_v2.UpsampleConformerEncoderV2
        input_size: {width}
        output_size: {width}
        input_layer: linear
        pre_lookahead_len: 3
        num_blocks: {token_layers}
        num_up_blocks: {frame_layers}
        up_stride: 2
        up_scale_factor: 2
        attention_heads: {heads}
        pos_enc_layer_type: rel_pos_espnet
        selfattention_layer_type: rel_selfattn
        key_bias: true
        linear_units: {feed_forward}
        dropout_rate: 0.1
        positional_dropout_rate: 0.1
        attention_dropout_rate: 0.1
        normalize_before: true
    decoder: !new:cosyvoice2.flow.flow_matching.CausalConditionalCFM
        inference_cfg_rate: 0.7
        estimator: !new:cosyvoice2.flow.decoder_dit.DiT
            in_channels: 320
            out_channels: 80
            mlp_ratio: 4.0
            depth: {depth}
            num_heads: {heads}
            head_dim: {head_width}
            hidden_size: {width}
"""

# Of random weights; large enough that every part changes the result, small enough that nothing overflows.
_BIAS = 0.02
_MODULATION = 0.1
_PITCH_HZ = 150.0


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    heads: int
    head_width: int
    token_layers: int
    frame_layers: int
    feed_forward: int
    depth: int
    vocoder_channels: int
    pitch_channels: int


SIZES = {
    "tiny": Size(64, 2, 32, 3, 2, 128, 2, 32, 32),
    "full": Size(512, 8, 64, 6, 4, 2048, 16, 512, 512),
}


def flow_yaml(size: Size) -> str:
    """As the official one, with class names and all."""
    return _FLOW_YAML.format(**asdict(size))


def write_token2wav(out: Path, name: str) -> None:
    """``token2wav/`` and the default voice's prompt."""
    size = SIZES[name]
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flow.yaml").write_text(flow_yaml(size), encoding="utf-8")
    with torch.device("meta"):
        flow = FlowWeights(read_flow_config(folder / "flow.yaml"))
        vocoder = HiFT(80, size.vocoder_channels, size.pitch_channels)
    torch.save(_random(flow, 1), folder / "flow.pt")
    weights = _random(vocoder, 2)
    weights["f0_predictor.classifier.bias"].fill_(_PITCH_HZ)
    torch.save(with_weight_norm(weights), folder / "hift.pt")
    _write_tokenizer(folder / TOKENIZER_FILE)
    _write_embedding(folder / EMBEDDING_FILE)
    (out / "assets").mkdir(exist_ok=True)
    soundfile.write(out / "assets/default_female.wav", _prompt(), MEL_RATE_HZ, subtype="PCM_16")


PARTS: tuple[Callable[[Path, str], None], ...] = (write_thinker, write_token2wav)
"""Each writes its part of the directory."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a Step-Audio2 model directory with random weights.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    arguments = parser.parse_args()
    for write in PARTS:
        write(arguments.out, arguments.size)


def _random(module: nn.Module, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, tensor in module.state_dict().items():
        if tensor.dim() == 1 and name.endswith((".weight", ".alpha")):
            weights[name] = torch.ones(tensor.shape)
            continue
        # Of a transposed convolution too: as many inputs meet in each output, give or take.
        spread = _BIAS if tensor.dim() == 1 else 1 / math.sqrt(max(1, math.prod(tensor.shape[1:])))
        if "adaLN_modulation" in name:
            spread *= _MODULATION
        if name == "input_embedding.weight":
            spread = 1.0
        if name.startswith("conv_post."):
            # Its exponential is the loudness.
            spread *= _MODULATION
        weights[name] = torch.randn(tensor.shape, generator=generator) * spread
    return weights


def with_weight_norm(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the vocoder is trained: all its convolutions but those of the source."""
    stored = {}
    for name, tensor in weights.items():
        if tensor.dim() == 3 and not name.startswith("source_downs."):
            stem = name.removesuffix(".weight") + ".parametrizations.weight."
            stored[stem + "original0"] = tensor.flatten(1).norm(dim=1).view(-1, 1, 1)
            stored[stem + "original1"] = tensor
        else:
            stored[name] = tensor
    return {f"generator.{name}": tensor for name, tensor in stored.items()}


def _write_tokenizer(path: Path) -> None:
    """A stand-in: two strided convolutions, eight numbers rounded to -1, 0 or 1, and their code in base
    3."""
    draw = np.random.default_rng(3)
    constants: dict[str, np.ndarray] = {
        "w1": draw.normal(0, 0.1, (16, 128, 3)).astype(np.float32),
        "w2": draw.normal(0, 0.3, (8, 16, 3)).astype(np.float32),
        "one": np.array(1, np.float32),
        "powers": (3.0 ** np.arange(8)).astype(np.float32)[:, None],
        "last": np.array([2], np.int64),
    }

    def strided(source: str, weight: str, output: str) -> onnx.NodeProto:
        return helper.make_node(
            "Conv", [source, weight], [output], kernel_shape=[3], strides=[2], pads=[1, 1]
        )

    nodes = [
        strided("feats", "w1", "a"),
        helper.make_node("Tanh", ["a"], ["b"]),
        strided("b", "w2", "c"),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Round", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Transpose", ["f"], ["g"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["g", "powers"], ["h"]),
        helper.make_node("Squeeze", ["h", "last"], ["i"]),
        helper.make_node("Cast", ["i"], ["indices"], to=TensorProto.INT32),
    ]
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, ["B", 128, "T"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, ["B"]),
    ]
    output = helper.make_tensor_value_info("indices", TensorProto.INT32, ["B", "N"])
    _save(path, nodes, inputs, output, constants)


def _write_embedding(path: Path) -> None:
    """A stand-in: the mean over time, and a product."""
    draw = np.random.default_rng(4)
    constants: dict[str, np.ndarray] = {
        "w": draw.normal(0, 0.1, (80, 192)).astype(np.float32),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Abs", ["input"], ["a"]),
        helper.make_node("ReduceMean", ["a", "axis"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["output"]),
    ]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["B", "T", 80])]
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["B", 192])
    _save(path, nodes, inputs, output, constants)


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    constants: dict[str, np.ndarray],
) -> None:
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "stand_in", inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def _prompt(seconds: float = 6.0) -> np.ndarray:
    """Something like a voice: a buzz that glides and swells four times a second. float32 ``[samples]``."""
    time = np.arange(round(seconds * MEL_RATE_HZ)) / MEL_RATE_HZ
    phase = 2 * np.pi * np.cumsum(190 + 30 * np.sin(2 * np.pi * 0.7 * time)) / MEL_RATE_HZ
    buzz = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 12))
    wave = 0.2 * buzz * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * time))
    return np.asarray(wave, np.float32)


if __name__ == "__main__":
    main()
