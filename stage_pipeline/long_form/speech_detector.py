"""Voice activity: Silero's network, which comes with faster-whisper, run over a stream of audio."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from stage_pipeline.stages import Float32Wave

FRAME = 512
"""Samples a probability; 32 ms at 16 kHz, the rate it hears at."""
_CONTEXT = 64
_STATE = (1, 1, 128)


class SpeechDetector:
    """Hears one recording from its start, block by block: memory does not grow with it."""

    def __init__(self) -> None:
        self._session = _session()
        self._hidden = np.zeros(_STATE, np.float32)
        self._cell = np.zeros(_STATE, np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)

    def feed(self, wave: Float32Wave) -> npt.NDArray[np.float32]:
        """How likely each next frame of float32 ``[samples]`` is speech; a last frame is filled up."""
        frames = np.pad(wave, (0, -len(wave) % FRAME)).reshape(-1, FRAME)
        # Each frame comes with the end of the one before it.
        before = np.concatenate([self._context[None], frames[:-1, -_CONTEXT:]])
        self._context = frames[-1, -_CONTEXT:]
        likely, self._hidden, self._cell = self._session.run(
            None,
            {"input": np.concatenate([before, frames], axis=1), "h": self._hidden, "c": self._cell},
        )
        return np.asarray(likely, np.float32).reshape(-1)


@cache
def _session() -> ort.InferenceSession:
    # The file alone: importing the package would load all of Whisper's runtime into any engine's process.
    package = find_spec("faster_whisper")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("faster_whisper")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    path = Path(package.origin).parent / "assets" / "silero_vad_v6.onnx"
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
