"""From a prompt wav to what a voice is made of: speech tokens, a speaker embedding, and a mel spectrogram.

The tokenizer and the embedding come as ONNX files, and onnxruntime (which the embedded engine needs
anyway) runs them as they are; the features before them are a page of torch each. So neither torchaudio
nor s3tokenizer, onnx2torch or librosa is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import torch
from torch import Tensor
from torch.nn import functional

from stage_pipeline.engines.step_audio2.resample import resample
from stage_pipeline.engines.step_audio2.spectra import (
    MEL_RATE_HZ,
    TOKENIZER_RATE_HZ,
    prompt_mel,
    speaker_fbank,
    tokenizer_mel,
)
from stage_pipeline.engines.step_audio2.token2wav.flow import FRAMES_PER_TOKEN, VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.flow_config import CheckpointError

TOKENIZER_FILE = "speech_tokenizer_v2_25hz.onnx"
EMBEDDING_FILE = "campplus.onnx"


@dataclass(frozen=True, slots=True)
class PromptWave:
    """float32 ``[samples, channels]`` in [-1, 1]."""

    samples: npt.NDArray[np.float32]
    rate_hz: int


class PromptModels:
    """The two ONNX models of a checkpoint, on the CPU: a voice is prepared once."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _session(folder / TOKENIZER_FILE)
        self._embedding = _session(folder / EMBEDDING_FILE)

    def tokens(self, wave: Tensor) -> Tensor:
        """16 kHz ``[samples]`` to int64 ``[n]``, 25 a second."""
        mel = tokenizer_mel(wave)
        feats, length = (tensor.name for tensor in self._tokenizer.get_inputs())
        (indices,) = self._tokenizer.run(
            None, {feats: mel[None].numpy(), length: np.array([mel.shape[1]], np.int32)}
        )
        return torch.from_numpy(np.asarray(indices)).long().flatten()

    def embedding(self, wave: Tensor) -> Tensor:
        """16 kHz ``[samples]`` to float32 ``[speaker width]``."""
        bank = speaker_fbank(wave)
        (name,) = (tensor.name for tensor in self._embedding.get_inputs())
        (embedding,) = self._embedding.run(None, {name: bank[None].numpy()})
        return torch.from_numpy(np.asarray(embedding, np.float32)).flatten()

    def prepare(self, prompt: PromptWave) -> VoiceFeatures:
        """The official way takes the first channel at 16 kHz, and the mean of all at 24 kHz."""
        samples = torch.from_numpy(prompt.samples)
        first = resample(samples[:, 0].contiguous(), prompt.rate_hz, TOKENIZER_RATE_HZ)
        mixed = resample(samples.mean(1), prompt.rate_hz, MEL_RATE_HZ)
        tokens = self.tokens(first)
        mel = fitted(prompt_mel(mixed), FRAMES_PER_TOKEN * len(tokens))
        return VoiceFeatures(tokens, mel, self.embedding(first))


def fitted(mel: Tensor, frames: int) -> Tensor:
    """``[n, mels]`` to exactly ``frames`` frames: the last one again, for the one or two that are
    missing."""
    missing = frames - len(mel)
    if missing <= 0:
        return mel[:frames]
    return functional.pad(mel.T[None], (0, missing), mode="replicate")[0].T.contiguous()


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not path.is_file():
        raise CheckpointError(f"token2wav/{path.name} is missing")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors share no base class
        raise CheckpointError(f"token2wav/{path.name} is not a model that onnxruntime can load") from error
