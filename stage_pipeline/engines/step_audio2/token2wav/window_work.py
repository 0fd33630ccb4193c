"""Which windows of streams are voiced together: the decoder behind the batcher of what is listened to."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from stage_pipeline.engines.step_audio2.token2wav.batcher import Request
from stage_pipeline.engines.step_audio2.token2wav.flow import Flow, VoiceCaches, VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.lane import Lane
from stage_pipeline.engines.step_audio2.token2wav.stream_decoder import StreamDecoder, StreamWindow
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import StreamState
from stage_pipeline.stages import Float32Wave


@dataclass(slots=True, eq=False)
class Job:
    """A stream as the decoder's side sees it. ``state`` is there from its first window to its last."""

    features: VoiceFeatures
    seed: int
    state: StreamState | None = None
    busy: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    job: Job
    tokens: tuple[int, ...]
    final: bool


class WindowWork:
    """``most_streams``: windows of one pass; ``most_caches``: voices whose prompt's memory is kept, which
    takes 0.3 GB for one of ten seconds."""

    def __init__(
        self, flow: Flow, streams: StreamDecoder, lane: Lane, most_streams: int, most_caches: int
    ) -> None:
        self._flow = flow
        self._streams = streams
        self._lane = lane
        self._most_streams = most_streams
        self._most_caches = most_caches
        self._lock = threading.Lock()
        self._live: set[int] = set()
        self._caches: OrderedDict[int, VoiceCaches] = OrderedDict()

    def opened(self, job: Job) -> None:
        with self._lock:
            self._live.add(id(job))

    def closed(self, job: Job) -> None:
        """It has no more windows."""
        with self._lock:
            job.closed = True
            self._end(job)

    def choose(self, waiting: Sequence[Request]) -> list[Request]:
        free = self._streams.slots.free
        able = []
        for request in waiting:
            if _ask(request).job.state is None:
                if not free:
                    continue
                free -= 1
            able.append(request)
        return able[: self._most_streams]

    def full(self, waiting: Sequence[Request]) -> bool:
        chosen = self.choose(waiting)
        if len(chosen) < len(waiting):
            return True
        with self._lock:
            return len(waiting) >= len(self._live) or len(chosen) >= self._most_streams

    @torch.inference_mode()
    def decode(self, chosen: Sequence[Request]) -> list[Float32Wave]:
        asks = [_ask(request) for request in chosen]
        with self._lock:
            for ask in asks:
                ask.job.busy = True
        try:
            with self._lane.taken():
                return self._streams.step(
                    [
                        StreamWindow(self._state(ask.job), ask.job.seed, ask.tokens, ask.final)
                        for ask in asks
                    ]
                )
        except Exception:
            # Their caches may be half written.
            for ask in asks:
                ask.job.closed = True
            raise
        finally:
            with self._lock:
                for ask in asks:
                    ask.job.busy = False
                    ask.job.closed |= ask.final
                    if ask.job.closed:
                        self._end(ask.job)

    @torch.inference_mode()
    def warm_up(self, voices: Iterable[VoiceFeatures]) -> None:
        """Before the first request."""
        with self._lane.taken():
            for voice in voices:
                self._caches_of(voice)
            self._streams.warm_up()
            self._lane.settle()

    def _state(self, job: Job) -> StreamState:
        if job.state is None:
            job.state = self._streams.begin(self._caches_of(job.features))
        if job.state is None:
            raise RuntimeError("a stream was chosen without a slot for it")
        return job.state

    def _caches_of(self, voice: VoiceFeatures) -> VoiceCaches:
        # The caches hold their voice, so its id stands for no other while they are here.
        caches = self._caches.get(id(voice))
        if caches is None:
            caches = self._caches[id(voice)] = self._flow.prompt_caches(voice)
            if len(self._caches) > self._most_caches:
                self._caches.popitem(last=False)
        self._caches.move_to_end(id(voice))
        return caches

    def _end(self, job: Job) -> None:
        self._live.discard(id(job))
        if job.state is not None and not job.busy:
            self._streams.end(job.state)
            job.state = None


def _ask(request: Request) -> Ask:
    if not isinstance(request.work, Ask):
        raise TypeError("not a request of this engine")
    return request.work
