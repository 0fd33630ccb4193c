"""Voices: a prompt wav, checked and prepared once, kept as a file that any worker can load."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import threading
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
from stage_pipeline.voice_check import LONGEST_S, LOWEST_RATE_HZ, check_wave, rate_too_low

DEFAULT_VOICE = "default"
DEFAULT_VARIABLE = "STEP_AUDIO2_DEFAULT_PROMPT_WAV"
_DEFAULT_PLACES = ("assets/default_female.wav", "default_female.wav")

LONGEST_FRAMES = 846
"""Of a prompt of ``LONGEST_S``."""
_HIGHEST_RATE_HZ = 192_000
_MOST_CHANNELS = 8
_LARGEST_BYTES = 64 * 2**20

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
    try:
        return _read(data)
    except StagewaveError as error:
        error.field = "voice"
        raise
    except soundfile.LibsndfileError as error:
        raise StagewaveError(
            ErrorCode.NOT_AUDIO, "a voice's file is not a wav or flac file", field="voice"
        ) from error


def _read(data: bytes) -> PromptWave:
    if len(data) > _LARGEST_BYTES:
        raise StagewaveError(
            ErrorCode.TOO_LARGE, f"a voice's file is larger than {_LARGEST_BYTES // 2**20} MiB"
        )
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        rate_hz, channels, frames = file.samplerate, file.channels, file.frames
        if rate_hz < LOWEST_RATE_HZ:
            raise rate_too_low(rate_hz)
        if rate_hz > _HIGHEST_RATE_HZ:
            raise StagewaveError(ErrorCode.INVALID_REQUEST, f"a voice has more than {_HIGHEST_RATE_HZ} Hz")
        if channels > _MOST_CHANNELS:
            raise StagewaveError(
                ErrorCode.INVALID_REQUEST, f"a voice has more than {_MOST_CHANNELS} channels"
            )
        if frames > round(LONGEST_S * rate_hz):
            raise StagewaveError(ErrorCode.AUDIO_TOO_LONG, f"a voice may last {LONGEST_S} s at most")
        samples = file.read(dtype="float32", always_2d=True)
    if not np.isfinite(samples).all():
        raise StagewaveError(ErrorCode.NOT_AUDIO, "a voice has samples that are no numbers")
    # The first channel alone is what the tokens and the embedding come from.
    check_wave(samples[:, 0], rate_hz)
    return PromptWave(np.clip(samples, -1, 1), rate_hz)


class VoiceShelf:
    """Prepared voices in a folder, each beside its hash: ``<key>.safetensors`` and ``<key>.sha256``.

    The key is made of the prompt and of the two models that prepare it, so another checkpoint in the same
    folder prepares its own. A file that does not match its hash is prepared again.
    """

    def __init__(self, folder: Path, model: Path) -> None:
        self._folder = folder
        self._model = model / "token2wav"
        self._models: PromptModels | None = None
        self._lock = threading.Lock()
        self._models_hash = b""

    def voice(self, data: bytes) -> VoiceFeatures:
        """The voice of a prompt's bytes. Raises ``StagewaveError`` for a prompt that cannot be used, and
        ``CheckpointError`` for models that cannot."""
        key = self._key(data)
        kept = self._load(key)
        if kept is not None:
            return kept
        features = self.prepare(data)
        self._keep(key, features)
        return features

    def prepare(self, data: bytes) -> VoiceFeatures:
        """As ``voice``, and nothing is kept here. One at a time."""
        prompt = read_prompt(data)
        with self._lock:
            if self._models is None:
                self._models = PromptModels(self._model)
            features = self._models.prepare(prompt)
        if not len(features.tokens) or features.frames > LONGEST_FRAMES:
            raise StagewaveError(
                ErrorCode.INVALID_REQUEST, "a voice could not be turned into speech tokens", field="voice"
            )
        return features

    @property
    def tag(self) -> str:
        """Names the models: what they prepare is of no use to others."""
        return self._of_models().hexdigest()[:32]

    def _key(self, data: bytes) -> str:
        digest = self._of_models()
        digest.update(hashlib.sha256(data).digest())
        return digest.hexdigest()

    def _of_models(self) -> hashlib._Hash:
        if not self._models_hash:
            for name in (TOKENIZER_FILE, EMBEDDING_FILE):
                path = self._model / name
                if path.is_file():
                    with path.open("rb") as file:
                        self._models_hash += hashlib.file_digest(file, "sha256").digest()
        return hashlib.sha256(_FORMAT + self._models_hash)

    def _load(self, key: str) -> VoiceFeatures | None:
        try:
            stored = (self._folder / f"{key}.safetensors").read_bytes()
            promised = (self._folder / f"{key}.sha256").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if hashlib.sha256(stored).hexdigest() != promised:
            return None
        try:
            return from_bytes(stored)
        except (KeyError, safetensors.SafetensorError):
            return None

    def _keep(self, key: str, voice: VoiceFeatures) -> None:
        stored = to_bytes(voice)
        self._folder.mkdir(parents=True, exist_ok=True)
        # The hash last: without it, or with that of another worker's equal file, nothing wrong is ever
        # read.
        self._write(f"{key}.safetensors", stored)
        self._write(f"{key}.sha256", hashlib.sha256(stored).hexdigest().encode())

    def _write(self, name: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(data)
        os.replace(file.name, self._folder / name)


def to_bytes(voice: VoiceFeatures) -> bytes:
    """As a safetensors file."""
    tensors: dict[str, Tensor] = {"tokens": voice.tokens, "mel": voice.mel, "embedding": voice.embedding}
    stored: bytes = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
    return stored


def from_bytes(stored: bytes) -> VoiceFeatures:
    """Raises ``KeyError`` or ``SafetensorError`` for anything else."""
    tensors = safetensors.torch.load(stored)
    return VoiceFeatures(tensors["tokens"], tensors["mel"], tensors["embedding"])


def on_device(voice: VoiceFeatures, device: torch.device) -> VoiceFeatures:
    return VoiceFeatures(voice.tokens.to(device), voice.mel.to(device), voice.embedding.to(device))
