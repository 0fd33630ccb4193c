"""Which whole utterances are voiced together: the decoder behind the batcher of what nobody listens to."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stage_pipeline.engines.step_audio2.token2wav.batcher import Request
from stage_pipeline.engines.step_audio2.token2wav.flow import FRAMES_PER_TOKEN, VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.lane import Lane
from stage_pipeline.engines.step_audio2.token2wav.stream_decoder import CHUNK_POLICY
from stage_pipeline.engines.step_audio2.token2wav.whole_decoder import Utterance, WholeDecoder
from stage_pipeline.engines.step_audio2.urgency import Urgency
from stage_pipeline.stages import Float32Wave

# Padding to the longest costs what it is longer, and every pass its launches.
_ALIKE = 1.5


class WholeWork:
    """``most_frames``: mel frames, padding included, of one pass."""

    def __init__(self, decoder: WholeDecoder, lane: Lane, urgency: Urgency, most_frames: int) -> None:
        self._decoder = decoder
        self._lane = lane
        self._urgency = urgency
        self._most_frames = most_frames

    def choose(self, waiting: Sequence[Request]) -> list[Request]:
        """The one that waits longest, of those in the background only if there are no others; and those not
        much longer or shorter, since they are padded to one length."""
        waiting = sorted(waiting, key=lambda request: _utterance(request).background)
        lengths = [_frames(_utterance(request)) for request in waiting]
        chosen: list[Request] = []
        longest = 0
        for request, frames in zip(waiting, lengths, strict=True):
            padded = max(longest, frames) * (len(chosen) + 1)
            alike = lengths[0] / _ALIKE <= frames <= lengths[0] * _ALIKE
            if not chosen or (alike and padded <= self._most_frames):
                chosen.append(request)
                longest = max(longest, frames)
        return chosen

    def full(self, waiting: Sequence[Request]) -> bool:
        return len(self.choose(waiting)) < len(waiting)

    @torch.inference_mode()
    def decode(self, chosen: Sequence[Request]) -> list[Float32Wave]:
        utterances = [_utterance(request) for request in chosen]
        with self._lane.taken():
            if all(one.background for one in utterances):
                return self._decoder.voice(utterances, self._give_way)
            return self._decoder.voice(utterances)

    def _give_way(self) -> None:
        # What the GPU has been given it computes, whoever waits.
        self._lane.settle()
        self._urgency.give_way()

    @torch.inference_mode()
    def warm_up(self, voice: VoiceFeatures) -> None:
        """Before the first request. One voice is as good as another: nothing is kept of them."""
        count = CHUNK_POLICY.size
        with self._lane.taken():
            # One, two of a length, two of two lengths: each is compiled for itself.
            for counts in ((count,), (count, count), (count, count + 1)):
                self._decoder.voice([Utterance(voice, 0, range(one)) for one in counts])
            self._lane.settle()


def _utterance(request: Request) -> Utterance:
    if not isinstance(request.work, Utterance):
        raise TypeError("not a request of this decoder")
    return request.work


def _frames(utterance: Utterance) -> int:
    return utterance.voice.frames + FRAMES_PER_TOKEN * len(utterance.tokens)
