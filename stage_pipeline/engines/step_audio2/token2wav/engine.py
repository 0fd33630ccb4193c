"""Token2Wav of Step-Audio2: many streams and whole utterances at a time, batched."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.step_audio2.token2wav.batcher import Batcher, Request
from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_flow, load_hift
from stage_pipeline.engines.step_audio2.token2wav.flow import FRAMES_PER_TOKEN, Flow, VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.harmonic_source import SAMPLE_RATE_HZ
from stage_pipeline.engines.step_audio2.token2wav.lane import Lane
from stage_pipeline.engines.step_audio2.token2wav.noise import Noise
from stage_pipeline.engines.step_audio2.token2wav.stream_decoder import CHUNK_POLICY, StreamDecoder
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import LONGEST_TOKENS
from stage_pipeline.engines.step_audio2.token2wav.voices import (
    DEFAULT_VOICE,
    VoiceShelf,
    default_prompt,
    from_bytes,
    on_device,
    to_bytes,
)
from stage_pipeline.engines.step_audio2.token2wav.whole_decoder import Utterance, WholeDecoder
from stage_pipeline.engines.step_audio2.token2wav.whole_work import WholeWork
from stage_pipeline.engines.step_audio2.token2wav.window_work import Ask, Job, WindowWork
from stage_pipeline.engines.step_audio2.urgency import Urgency
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave, own_speed_only

_VOICES = 256
"""Voices made at run time that are kept, of some 200 KB each; the others are read again when needed."""
_CACHES = 8
_FRAMES_A_SECOND = 50


@dataclass(frozen=True, slots=True)
class Token2WavOptions:
    """``streams``: most streams with caches at a time, and windows a pass; others wait for a slot.
    ``wait_ms``: how long a window or an utterance waits for company. ``whole_frames``: most mel frames,
    padding included, of one pass over whole utterances, which takes memory in proportion. ``dtype``: of the
    flow, and ``vocoder_dtype`` of the vocoder's convolutions: None for float16 where the flow's is that,
    else float32. ``guidance``: None for the checkpoint's own. ``graphs``: CUDA graphs, and ``compile``:
    small kernels joined with ``torch.compile`` (it wants a C compiler), both on a GPU. ``longest_voice_s``:
    of prompts that come later; each stream's slot is as long as the longest prompt. ``beside_thinker``:
    whether both stages compute on one GPU."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    streams: int = 8
    wait_ms: float = 2.0
    whole_frames: int = 16384
    steps: int = 10
    guidance: float | None = None
    graphs: bool = True
    compile: bool = True
    longest_voice_s: float = 0.0
    vocoder_dtype: torch.dtype | None = None
    beside_thinker: bool = False


class StepAudio2Token2Wav:
    """Stage 1. ``model``: the checkpoint's folder; ``cache``: where prepared voices are kept; ``voices``:
    names to prompt wavs, to which ``default`` is added when it is not among them. Raises ``DeployError``
    for a checkpoint or a voice that cannot be used."""

    sample_rate = SAMPLE_RATE_HZ
    chunk_policy = CHUNK_POLICY

    def __init__(
        self,
        model: Path,
        cache: Path,
        voices: Mapping[str, str],
        environ: Mapping[str, str],
        options: Token2WavOptions,
        noise: Noise | None = None,
    ) -> None:
        device = torch.device(options.device)
        prompts = {name: Path(place) for name, place in voices.items()}
        if DEFAULT_VOICE not in prompts:
            prompts[DEFAULT_VOICE] = default_prompt(model, environ)
        config, weights = load_flow(model)
        if CHUNK_POLICY.lookahead != config.encoder.lookahead:
            raise DeployError(
                f"flow.yaml: a lookahead of {config.encoder.lookahead} tokens is not supported"
            )
        self._shelf = VoiceShelf(cache / "voices", model)
        features = _prepared(self._shelf, prompts)
        self._made: OrderedDict[str, VoiceFeatures] = OrderedDict()
        self._making = threading.Lock()
        self._device = device
        noise = noise or Noise()
        if device.type == "cuda":
            # cuDNN's attention refuses masks whose rows are not aligned, as ours are; the others take them.
            torch.backends.cuda.enable_cudnn_sdp(False)
            # One item or many, with an end of its own or not, twice over: more than the eight by default.
            torch._dynamo.config.recompile_limit = 32
        with torch.inference_mode():
            self._features = {name: on_device(voice, device) for name, voice in features.items()}
            flow = Flow(
                weights.to(device),
                config,
                noise.flow(config.mels),
                steps=options.steps,
                guidance=options.guidance,
                dtype=options.dtype,
            )
            vocoder = load_hift(model, _vocoder_dtype(options)).to(device)
            if options.compile and device.type == "cuda":
                flow.weights.decoder.estimator.compile_blocks()
                vocoder.compile_pointwise()
            longest = max(*(voice.frames for voice in features.values()), _frames(options.longest_voice_s))
            self._longest_frames = longest
            streams = StreamDecoder(
                flow,
                vocoder,
                noise,
                options.streams,
                longest,
                graphs=options.graphs and device.type == "cuda",
            )
            decoder = WholeDecoder(flow, vocoder, noise)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # the weights are there for both lanes
        ahead, behind = Lane(device, ahead=True), Lane(device, ahead=False)
        self._windows = WindowWork(flow, streams, ahead, options.streams, len(features) + _CACHES)
        self._urgency = Urgency()
        self._wholes = WholeWork(decoder, behind, self._urgency, options.whole_frames)
        self._beside_thinker = options.beside_thinker
        # A thread each: a window takes milliseconds, and a pass over whole utterances may take a second.
        self._window_batcher = Batcher(self._windows, options.wait_ms / 1000)
        self._whole_batcher = Batcher(self._wholes, options.wait_ms / 1000)

    def voices(self) -> tuple[str, ...]:
        return tuple(self._features)

    def open(
        self,
        voice: str,
        seed: int,
        *,
        speed: float = 1.0,
        features: Callable[[], bytes] | None = None,
        background: bool = False,
    ) -> StepAudio2Stream:
        if speed != 1.0:
            raise own_speed_only()
        found = self._features.get(voice) if features is None else self._made_voice(voice, features)
        if found is None:
            raise StagewaveError(ErrorCode.VOICE_UNKNOWN, "there is no such voice", field="voice")
        stream = StepAudio2Stream(
            found,
            seed,
            self._windows,
            self._window_batcher,
            self._whole_batcher,
            None if background else self._urgency,
        )
        if self._beside_thinker:
            # Its tokens are being made: that must not take longer because of what nobody waits for.
            stream.hurry()
        return stream

    @property
    def voice_tag(self) -> str:
        return self._shelf.tag

    def prepare_voice(self, prompt: bytes) -> bytes:
        features = self._shelf.prepare(prompt)
        self._check_length(features)
        return to_bytes(features)

    def warm_up(self) -> None:
        """Prepare each voice's caches, and run every shape that streams come in."""
        self._windows.warm_up(self._features.values())
        self._wholes.warm_up(self._features[DEFAULT_VOICE])

    def close(self) -> None:
        self._window_batcher.close()
        self._whole_batcher.close()

    def _made_voice(self, voice: str, features: Callable[[], bytes]) -> VoiceFeatures:
        """Streams hold their voice: one that is forgotten here while it sounds goes on."""
        with self._making:
            found = self._made.get(voice)
        if found is None:
            try:
                read = from_bytes(features())
            except (KeyError, SafetensorError) as error:
                raise StagewaveError(
                    ErrorCode.ENGINE_FAILED, "a voice's features cannot be read"
                ) from error
            self._check_length(read)
            with torch.inference_mode():
                found = on_device(read, self._device)
        with self._making:
            found = self._made.setdefault(voice, found)  # another thread may have been quicker
            self._made.move_to_end(voice)
            if len(self._made) > _VOICES:
                self._made.popitem(last=False)
        return found

    def _check_length(self, voice: VoiceFeatures) -> None:
        if voice.frames > self._longest_frames:
            longest_s = self._longest_frames / _FRAMES_A_SECOND
            raise StagewaveError(
                ErrorCode.AUDIO_TOO_LONG, f"a voice may last {longest_s:.1f} s at most here", field="voice"
            )


class StepAudio2Stream:
    """One utterance. A single final feed of a fresh stream is voiced as a whole: better and cheaper than
    in windows, if it is not longer than 100 s with its prompt (what attends to everything must end
    somewhere)."""

    def __init__(
        self,
        features: VoiceFeatures,
        seed: int,
        windows: WindowWork,
        window_batcher: Batcher,
        whole_batcher: Batcher,
        urgency: Urgency | None,
    ) -> None:
        """``urgency``: None for one that nobody waits for."""
        self._features = features
        self._seed = seed
        self._urgency = urgency
        self._job = Job(features, seed)
        self._windows = windows
        self._window_batcher = window_batcher
        self._whole_batcher = whole_batcher
        self._cancel: Callable[[], None] | None = None
        self._fed = False
        self._done = False

    def hurry(self) -> None:
        """Somebody waits for its first sound."""
        if self._urgency is not None:
            self._urgency.begins(self)

    def feed(self, tokens: tuple[int, ...], final: bool) -> Iterator[Float32Wave]:
        """As ``Token2WavStream.feed``: 960 samples a token in all. Ids that are no codebook entries are
        dropped."""
        if self._done:
            raise _misused("the stream has ended")
        kept = tuple(token for token in tokens if CHUNK_POLICY.keeps(token))
        whole = final and not self._fed and len(kept) <= LONGEST_TOKENS - len(self._features.tokens)
        first, self._fed, self._done = not self._fed, True, final
        if whole:
            self._calm_down()
            if kept:
                utterance = Utterance(self._features, self._seed, kept, self._urgency is None)
                with nullcontext() if self._urgency is None else self._urgency.behind_it():
                    yield from self._voice(self._whole_batcher, utterance)
            return
        if first:
            self.hurry()
            self._windows.opened(self._job)
        consumed = 0
        while (window := CHUNK_POLICY.next_window(kept, consumed, final)) is not None:
            part = kept[window.start : window.stop]
            for wave in self._voice(self._window_batcher, Ask(self._job, part, window.final)):
                self._calm_down()
                yield wave
            consumed = window.consumed
            if window.final:
                return
        if not consumed or len(kept) - consumed != CHUNK_POLICY.lookahead:
            raise _misused("a window that is not the last has another length than the policy's")

    def close(self) -> None:
        self._done = True
        if (cancel := self._cancel) is not None:
            cancel()
        self._calm_down()
        self._windows.closed(self._job)
        self._window_batcher.look_again()

    def _calm_down(self) -> None:
        if self._urgency is not None:
            self._urgency.ends(self)

    def _voice(self, batcher: Batcher, work: object) -> Iterator[Float32Wave]:
        request = Request(work)
        self._cancel = partial(batcher.cancel, request)
        try:
            wave = batcher.voice(request)
        except StagewaveError:
            self._done = True
            raise
        finally:
            self._cancel = None
        if wave is not None and len(wave):
            yield wave


def _frames(prompt_s: float) -> int:
    # One token more than fits: the tokenizer rounds up.
    return math.ceil(prompt_s * _FRAMES_A_SECOND) + FRAMES_PER_TOKEN if prompt_s else 0


def _vocoder_dtype(options: Token2WavOptions) -> torch.dtype:
    # Not bfloat16: eight bits of a sample are too few.
    halved = torch.float16 if options.dtype is torch.float16 else torch.float32
    return options.vocoder_dtype or halved


def _prepared(shelf: VoiceShelf, prompts: Mapping[str, Path]) -> dict[str, VoiceFeatures]:
    features = {}
    for name, path in prompts.items():
        try:
            features[name] = shelf.voice(path.read_bytes())
        except OSError as error:
            raise DeployError(f"voices.{name}: the prompt wav cannot be read") from error
        except StagewaveError as error:
            raise DeployError(f"voices.{name}: {error.message}") from error
    return features


def _misused(message: str) -> StagewaveError:
    return StagewaveError(ErrorCode.ENGINE_FAILED, message)
