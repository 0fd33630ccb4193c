"""The numbers of ``flow.yaml``, and nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from stage_pipeline.deploy import DeployError


class CheckpointError(DeployError):
    """A model directory that cannot be used; the message names the file and the tensor or key at fault."""


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The conformer that turns audio tokens (25 a second) into frames (50 a second)."""

    width: int
    heads: int
    feed_forward: int
    token_layers: int
    frame_layers: int
    lookahead: int


@dataclass(frozen=True, slots=True)
class EstimatorConfig:
    """The DiT that estimates the velocity of the mel spectrogram."""

    width: int
    heads: int
    head_width: int
    layers: int
    feed_forward: int


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Everything of the flow that its weights do not say by their shapes."""

    encoder: EncoderConfig
    estimator: EstimatorConfig
    vocabulary: int
    mels: int
    speaker_width: int
    guidance: float


# Variants of the architecture that were never released, and that this code does not compute.
_FIXED: dict[str, dict[str, object]] = {
    "flow": {"output_type": "mel"},
    "flow.encoder": {
        "input_layer": "linear",
        "up_stride": 2,
        "up_scale_factor": 2,
        "pos_enc_layer_type": "rel_pos_espnet",
        "selfattention_layer_type": "rel_selfattn",
        "key_bias": True,
        "normalize_before": True,
    },
}


def read_flow_config(path: Path) -> FlowConfig:
    """Read ``flow.yaml``. Its tags name classes: they are skipped, nothing they name is imported or built.

    Raises ``CheckpointError`` naming the key for anything missing or of another architecture.
    """
    try:
        # A subclass of SafeLoader: it builds plain dicts, strings and numbers only.
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_NumbersLoader)  # noqa: S506 (as above)
    except FileNotFoundError:
        raise CheckpointError("token2wav/flow.yaml is missing") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError("token2wav/flow.yaml cannot be read") from error
    flow = _Section("flow", data.get("flow") if isinstance(data, dict) else None)
    encoder, decoder = flow.section("encoder"), flow.section("decoder")
    estimator = decoder.section("estimator")
    config = FlowConfig(
        encoder=EncoderConfig(
            width=encoder.count("output_size"),
            heads=encoder.count("attention_heads"),
            feed_forward=encoder.count("linear_units"),
            token_layers=encoder.count("num_blocks"),
            frame_layers=encoder.count("num_up_blocks"),
            lookahead=encoder.count("pre_lookahead_len"),
        ),
        estimator=EstimatorConfig(
            width=estimator.count("hidden_size"),
            heads=estimator.count("num_heads"),
            head_width=estimator.count("head_dim"),
            layers=estimator.count("depth"),
            feed_forward=round(estimator.number("mlp_ratio") * estimator.count("hidden_size")),
        ),
        vocabulary=flow.count("vocab_size"),
        mels=flow.count("output_size"),
        speaker_width=flow.count("spk_embed_dim"),
        guidance=decoder.number("inference_cfg_rate"),
    )
    for section in (flow, encoder):
        section.insist(_FIXED[section.name])
    for section, key, value in (
        (flow, "input_size", config.encoder.width),
        (encoder, "input_size", config.encoder.width),
        (estimator, "in_channels", 4 * config.mels),
        (estimator, "out_channels", config.mels),
    ):
        section.insist({key: value})
    if config.encoder.width % config.encoder.heads:
        raise CheckpointError("flow.yaml: flow.encoder.attention_heads does not divide output_size")
    return config


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    values: object
    entries: dict[object, object] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            raise CheckpointError(f"flow.yaml: {self.name} is missing")
        object.__setattr__(self, "entries", self.values)

    def section(self, key: str) -> _Section:
        return _Section(f"{self.name}.{key}", self.entries.get(key))

    def number(self, key: str) -> float:
        value = self.entries.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"flow.yaml: {self.name}.{key} is not a number")
        return float(value)

    def count(self, key: str) -> int:
        value = self.number(key)
        if value < 1 or value != int(value):
            raise CheckpointError(f"flow.yaml: {self.name}.{key} is not a whole number above 0")
        return int(value)

    def insist(self, fixed: dict[str, object]) -> None:
        for key, value in fixed.items():
            if self.entries.get(key, value) != value:
                raise CheckpointError(f"flow.yaml: {self.name}.{key} is not {value}")


class _NumbersLoader(yaml.SafeLoader):
    """Reads what stands under a tag as plain values, whatever the tag."""


def _untagged(loader: yaml.SafeLoader, _tag: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return None


_NumbersLoader.add_multi_constructor("!", _untagged)
