"""Voices: a prompt wav, checked and prepared once, kept as a file that any worker can load."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import soundfile
import torch
from torch import Tensor

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.step_audio2.token2wav.flow import VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.prompt import (
    EMBEDDING_FILE,
    TOKENIZER_FILE,
    PromptModels,
    PromptWave,
)
from stage_pipeline.errors import ErrorCode, StagewaveError

DEFAULT_VOICE = "default"
DEFAULT_VARIABLE = "STEP_AUDIO2_DEFAULT_PROMPT_WAV"
_DEFAULT_PLACES = ("assets/default_female.wav", "default_female.wav")

# Below 2 s there is too little to hear a voice by (and the DiT wants 100 frames to hold on to); above
# 16.9 s the official caches of 1000 frames overflow while streaming.
SHORTEST_S = 2.0
LONGEST_S = 16.9
LONGEST_FRAMES = 846
# The prompt mel reaches 8 kHz.
_LOWEST_RATE_HZ, _HIGHEST_RATE_HZ = 16_000, 192_000
_MOST_CHANNELS = 8
_LARGEST_BYTES = 64 * 2**20
# A prompt is refused when its loudest moment is fainter than -34 dB, when more than 1 % of it is clipped,
# or when less than 30 % of its pieces of 25 ms are within 35 dB of the loudest one.
_FAINTEST_PEAK = 0.02
_CLIPPED = 0.999
_MOST_CLIPPED = 0.01
_PIECE_S = 0.025
_QUIET = 10 ** (-35 / 20)
_LEAST_SPOKEN = 0.3

_FORMAT = b"stagewave voice 1"


def default_prompt(model: Path, environ: Mapping[str, str]) -> Path:
    """Where the default voice's prompt is. Raises ``DeployError`` that says all the places looked at."""
    named = environ.get(DEFAULT_VARIABLE)
    places = [Path(named)] if named else []
    places += [model / place for place in _DEFAULT_PLACES]
    for place in places:
        if place.is_file():
            return place
    raise DeployError(
        f"no default voice: set {DEFAULT_VARIABLE} to a wav file, or put one at "
        + " or ".join(f"{{model}}/{place}" for place in _DEFAULT_PLACES)
    )


def read_prompt(data: bytes) -> PromptWave:
    """Decode and check a prompt. Raises ``StagewaveError`` that says what is wrong with it."""
    if len(data) > _LARGEST_BYTES:
        raise _refused(ErrorCode.TOO_LARGE, f"a voice's file is larger than {_LARGEST_BYTES // 2**20} MiB")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate_hz, channels, frames = file.samplerate, file.channels, file.frames
            if not _LOWEST_RATE_HZ <= rate_hz <= _HIGHEST_RATE_HZ:
                raise _refused(
                    ErrorCode.INVALID_REQUEST,
                    f"a voice has {rate_hz} Hz; it must have {_LOWEST_RATE_HZ} to {_HIGHEST_RATE_HZ} Hz",
                )
            if channels > _MOST_CHANNELS:
                raise _refused(
                    ErrorCode.INVALID_REQUEST, f"a voice has more than {_MOST_CHANNELS} channels"
                )
            if frames > round(LONGEST_S * rate_hz):
                raise _refused(ErrorCode.AUDIO_TOO_LONG, f"a voice may last {LONGEST_S} s at most")
            samples = file.read(dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise _refused(ErrorCode.NOT_AUDIO, "a voice's file is not a wav or flac file") from error
    _check(samples, rate_hz)
    return PromptWave(np.clip(samples, -1, 1), rate_hz)


def _check(samples: np.ndarray[tuple[int, int], np.dtype[np.float32]], rate_hz: int) -> None:
    if not len(samples):
        raise _refused(ErrorCode.AUDIO_EMPTY, "a voice has no samples")
    if len(samples) < SHORTEST_S * rate_hz:
        raise _refused(ErrorCode.INVALID_REQUEST, f"a voice must last {SHORTEST_S} s at least")
    if not np.isfinite(samples).all():
        raise _refused(ErrorCode.NOT_AUDIO, "a voice has samples that are no numbers")
    # The first channel alone is what the tokens and the embedding come from.
    size = np.abs(samples[:, 0])
    if size.max() < _FAINTEST_PEAK:
        raise _refused(ErrorCode.INVALID_REQUEST, "a voice is silent or too faint in its first channel")
    if (size >= _CLIPPED).mean() > _MOST_CLIPPED:
        raise _refused(ErrorCode.INVALID_REQUEST, "a voice is clipped: record it at a lower level")
    piece = round(_PIECE_S * rate_hz)
    pieces = size[: len(size) // piece * piece].reshape(-1, piece)
    loudness = np.sqrt(np.square(pieces, dtype=np.float64).mean(1))
    if (loudness > loudness.max() * _QUIET).mean() < _LEAST_SPOKEN:
        raise _refused(ErrorCode.INVALID_REQUEST, "a voice is silent for most of its time")


def _refused(code: ErrorCode, message: str) -> StagewaveError:
    return StagewaveError(code, message, field="voice")


class VoiceShelf:
    """Prepared voices in a folder, each beside its hash: ``<key>.safetensors`` and ``<key>.sha256``.

    The key is made of the prompt and of the two models that prepare it, so another checkpoint in the same
    folder prepares its own. A file that does not match its hash is prepared again.
    """

    def __init__(self, folder: Path, model: Path) -> None:
        self._folder = folder
        self._model = model / "token2wav"
        self._models: PromptModels | None = None
        self._models_hash = b""

    def voice(self, data: bytes) -> VoiceFeatures:
        """The voice of a prompt's bytes. Raises ``StagewaveError`` for a prompt that cannot be used, and
        ``CheckpointError`` for models that cannot."""
        key = self._key(data)
        kept = self._load(key)
        if kept is not None:
            return kept
        prompt = read_prompt(data)
        if self._models is None:
            self._models = PromptModels(self._model)
        features = self._models.prepare(prompt)
        if not len(features.tokens) or features.frames > LONGEST_FRAMES:
            raise _refused(ErrorCode.INVALID_REQUEST, "a voice could not be turned into speech tokens")
        self._keep(key, features)
        return features

    def _key(self, data: bytes) -> str:
        if not self._models_hash:
            for name in (TOKENIZER_FILE, EMBEDDING_FILE):
                path = self._model / name
                if path.is_file():
                    with path.open("rb") as file:
                        self._models_hash += hashlib.file_digest(file, "sha256").digest()
        return hashlib.sha256(_FORMAT + self._models_hash + hashlib.sha256(data).digest()).hexdigest()

    def _load(self, key: str) -> VoiceFeatures | None:
        try:
            stored = (self._folder / f"{key}.safetensors").read_bytes()
            promised = (self._folder / f"{key}.sha256").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if hashlib.sha256(stored).hexdigest() != promised:
            return None
        try:
            tensors = safetensors.torch.load(stored)
            return VoiceFeatures(tensors["tokens"], tensors["mel"], tensors["embedding"])
        except (KeyError, safetensors.SafetensorError):
            return None

    def _keep(self, key: str, voice: VoiceFeatures) -> None:
        tensors: dict[str, Tensor] = {
            "tokens": voice.tokens,
            "mel": voice.mel,
            "embedding": voice.embedding,
        }
        stored = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
        self._folder.mkdir(parents=True, exist_ok=True)
        # The hash last: without it, or with that of another worker's equal file, nothing wrong is ever
        # read.
        self._write(f"{key}.safetensors", stored)
        self._write(f"{key}.sha256", hashlib.sha256(stored).hexdigest().encode())

    def _write(self, name: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(data)
        os.replace(file.name, self._folder / name)


def on_device(voice: VoiceFeatures, device: torch.device) -> VoiceFeatures:
    return VoiceFeatures(voice.tokens.to(device), voice.mel.to(device), voice.embedding.to(device))
