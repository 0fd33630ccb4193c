"""Loads the weights of a model directory, by their official names, strictly."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor, nn

from stage_pipeline.engines.step_audio2.token2wav.flow import FlowWeights
from stage_pipeline.engines.step_audio2.token2wav.flow_config import (
    CheckpointError,
    FlowConfig,
    read_flow_config,
)
from stage_pipeline.engines.step_audio2.token2wav.hift import HiFT

FOLDER = "token2wav"

_GAIN = ".parametrizations.weight.original0"
_DIRECTION = ".parametrizations.weight.original1"
_NAMED = 5


def load_flow(model: Path) -> tuple[FlowConfig, FlowWeights]:
    """Raises ``CheckpointError`` naming what is missing, too much, or of another shape."""
    folder = model / FOLDER
    config = read_flow_config(folder / "flow.yaml")
    with torch.device("meta"):
        weights = FlowWeights(config)
    _fill(weights, _read(folder / "flow.pt"), "flow.pt")
    return config, weights


def load_hift(model: Path, dtype: torch.dtype = torch.float32) -> HiFT:
    """As ``load_flow``. Sizes come from the shapes: there is no config file. Weight norm is folded in.
    ``dtype``: of the convolutions."""
    stored = _read(model / FOLDER / "hift.pt")
    stored = {name.removeprefix("generator."): tensor for name, tensor in stored.items()}
    stored = _without_weight_norm(stored)
    for name in ("conv_pre.weight", "f0_predictor.condnet.0.weight"):
        if name not in stored:
            raise CheckpointError(f"hift.pt: missing {name}")
    channels, mels = stored["conv_pre.weight"].shape[:2]
    with torch.device("meta"):
        vocoder = HiFT(mels, channels, stored["f0_predictor.condnet.0.weight"].shape[0])
    _fill(vocoder, stored, "hift.pt")
    vocoder.settle(dtype)
    return vocoder


def _read(path: Path) -> dict[str, Tensor]:
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{FOLDER}/{path.name} is missing") from None
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{FOLDER}/{path.name} is not a file of weights alone") from error
    if not isinstance(stored, dict) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise CheckpointError(f"{FOLDER}/{path.name} is not a dict of tensors")
    return stored


def _without_weight_norm(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """``weight = gain * direction / |direction|``, the norm over all dimensions but the first."""
    folded = {}
    for name, tensor in stored.items():
        if name.endswith(_GAIN):
            stem = name.removesuffix(_GAIN)
            direction = stored.get(stem + _DIRECTION)
            if direction is None:
                raise CheckpointError(f"hift.pt: missing {stem}{_DIRECTION}")
            norm = direction.flatten(1).norm(dim=1).view(-1, *[1] * (direction.dim() - 1))
            folded[stem + ".weight"] = direction * (tensor / norm)
        elif name.endswith(_DIRECTION):
            if name.removesuffix(_DIRECTION) + _GAIN not in stored:
                raise CheckpointError(f"hift.pt: missing {name.removesuffix(_DIRECTION)}{_GAIN}")
        else:
            folded[name] = tensor
    return folded


def _fill(module: nn.Module, stored: dict[str, Tensor], file: str) -> None:
    expected = module.state_dict()
    _refuse(file, "missing", expected.keys() - stored.keys())
    _refuse(file, "not known", stored.keys() - expected.keys())
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    _refuse(
        file,
        "of another shape",
        {
            f"{name} {tuple(tensor.shape)} instead of {shapes[name]}"
            for name, tensor in stored.items()
            if tuple(tensor.shape) != shapes[name]
        },
    )
    _refuse(
        file,
        "not floating point",
        {name for name, tensor in stored.items() if not tensor.is_floating_point()},
    )
    module.load_state_dict({name: tensor.float() for name, tensor in stored.items()}, assign=True)
    module.requires_grad_(False).eval()


def _refuse(file: str, fault: str, names: set[str]) -> None:
    if names:
        shown = ", ".join(sorted(names)[:_NAMED])
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise CheckpointError(f"{file}: {fault}: {shown}{more}")
