"""The Thinker of Step-Audio2: many requests at a time in one vLLM engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
from pydantic import JsonValue

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.step_audio2.thinker.engine_host import EngineHost, HostOptions, on_cpu
from stage_pipeline.engines.step_audio2.thinker.output import Answer, Part, Spelling
from stage_pipeline.engines.step_audio2.thinker.prompts import DIALECTS, messages_of, prompt_ids, segments
from stage_pipeline.engines.step_audio2.thinker.sampling import (
    Sampling,
    deploy_sampling,
    ids_for,
    longest_codes,
    request_sampling,
)
from stage_pipeline.engines.step_audio2.thinker.vocabulary import Vocabulary
from stage_pipeline.engines.step_audio2.urgency import Urgency
from stage_pipeline.errors import EngineDead, ErrorCode, StagewaveError
from stage_pipeline.stages import (
    THINKER_RATE_HZ,
    GenerateRequest,
    Segment,
    Task,
    ThinkerDelta,
    Usage,
)

CHUNK_POLICY = FixedWindows()
LONGEST_TEXT_CHARS = 300
"""Of a text said in one go: longer ones tempt the model to leave words out."""
LONGEST_AUDIO_S = 25.0
"""What the audio tower hears at once."""
_WARM_UP_TOKENS = 32
_WARM_UP_COMPANY = (15, 16)
"""Triton compiles once more for sizes that 16 divides."""
_WARM_UP_SAMPLINGS: tuple[dict[str, float | int], ...] = (
    {"temperature": 0.7, "top_k": 20, "top_p": 1.0},
    {"temperature": 0.7, "top_k": -1, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9},
)
_FIRST_WINDOW = CHUNK_POLICY.size + CHUNK_POLICY.lookahead


class StepAudio2Thinker:
    """Stage 0. Raises ``DeployError`` for a checkpoint, a GPU or settings that it cannot start with.

    S2ST says its translation; what was said in the source's language the model does not write down.
    """

    resumes_from_tokens = True
    chunk_policy = CHUNK_POLICY
    longest_text_chars = LONGEST_TEXT_CHARS
    longest_audio_s = LONGEST_AUDIO_S

    def __init__(
        self,
        options: HostOptions,
        *,
        dialect: str,
        audio_out_s: float,
        sampling: Mapping[str, JsonValue],
    ) -> None:
        """In the process's main thread. ``dialect``: one of ``DIALECTS``. ``audio_out_s``: the longest
        answer."""
        self._vocabulary = Vocabulary.load(options.model_dir)
        self._dialect = dialect
        self._audio_out_s = audio_out_s
        self._sampling = deploy_sampling(sampling)
        self._host = EngineHost(options)
        self._urgency = Urgency()

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        """As ``Thinker.generate``. Raises ``EngineDead`` too, and ``no_audio`` for an answer without."""
        _check(request)
        return _Utterance(request, self._vocabulary, self._host, self._urgency).deltas(
            prompt_ids(
                segments(messages_of(request, self._dialect), DIALECTS[self._dialect]), self._vocabulary
            ),
            request_sampling(request, self._sampling),
            None if request.task is Task.ASR else longest_codes(request, self._audio_out_s),
        )

    def abort(self, request_id: str) -> None:
        self._host.abort(request_id)

    def warm_up(self) -> None:
        """Run each way through the model once, and on a GPU each way of sampling in company: vLLM has a
        kernel for many at a time, which would be compiled when many first meet, and all wait for it."""
        hush = np.random.default_rng(0).normal(0, 0.01, THINKER_RATE_HZ).astype(np.float32)
        few: dict[str, float | int] = {"max_tokens": _WARM_UP_TOKENS, "min_tokens": _WARM_UP_TOKENS}
        self._try(GenerateRequest("warm-up-tts", Task.TTS, text="Ready.", sampling=few))
        self._try(GenerateRequest("warm-up-asr", Task.ASR, audio=hush, sampling=few))
        if on_cpu():
            return
        for sampling, count in product(_WARM_UP_SAMPLINGS, _WARM_UP_COMPANY):
            together = [
                GenerateRequest(f"warm-up-{number}", Task.TTS, text="Ready.", sampling={**few, **sampling})
                for number in range(count)
            ]
            with ThreadPoolExecutor(count) as threads:
                list(threads.map(self._try, together))

    def _try(self, request: GenerateRequest) -> None:
        try:
            for _ in self.generate(request):
                pass
        except StagewaveError as error:
            if error.code is not ErrorCode.NO_AUDIO:
                raise DeployError(f"the Thinker's engine fails at its first request: {error}") from error
        except EngineDead as error:
            raise DeployError("the Thinker's engine died at its first request; its log says why") from error

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return self._host.running

    def close(self) -> None:
        self._host.close()


class _Utterance:
    """One request on its way through the engine."""

    def __init__(
        self, request: GenerateRequest, vocabulary: Vocabulary, host: EngineHost, urgency: Urgency
    ) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._host = host
        self._urgency = urgency
        self._spelling = Spelling(vocabulary)
        self._texts: list[str] = []
        self._text_tokens = 0
        self._audio_tokens = 0

    def deltas(self, prompt: list[int], sampling: Sampling, longest: int | None) -> Iterator[ThinkerDelta]:
        request, vocabulary = self._request, self._vocabulary
        prior = request.prior_output_ids or tuple(
            vocabulary.first_code + code for code in request.prior_tokens
        )
        before = Answer(vocabulary, CHUNK_POLICY, (), longest)
        before.add(prior, "prior", len(prompt))
        made = before.take()
        if prior:
            yield self._delta(replace(made, ids=(), codes=made.codes[len(request.prior_tokens) :]))
            self._audio_tokens = len(made.codes)
        sampling = self._limited(sampling, longest, len(prior))
        finish, prompt_tokens = _already(prior, made, sampling, longest), len(prompt)
        if finish is None:
            answer = Answer(vocabulary, CHUNK_POLICY, made.codes, longest)
            try:
                if request.background:
                    # A prompt, with audio above all, holds up everybody's next token.
                    self._urgency.give_way()
                else:
                    self._urgency.begins(self)
                self._host.submit(
                    request.request_id,
                    [*prompt, *prior],
                    request.audio,
                    sampling,
                    answer,
                    background=request.background,
                )
                while finish is None:
                    part = answer.take()
                    if part.finish == "abort":
                        return
                    if not self._speaks or self._audio_tokens + len(part.codes) >= _FIRST_WINDOW:
                        self._urgency.ends(self)
                    prompt_tokens = part.prompt_tokens - len(prior)
                    finish = part.finish
                    yield self._delta(part)
            finally:
                self._urgency.ends(self)
                # For whoever stops listening; of an answer that has ended nothing is left to abort.
                self._host.abort(request.request_id)
        yield self._last(finish, prompt_tokens)

    @property
    def _speaks(self) -> bool:
        return self._request.task is not Task.ASR

    def _limited(self, sampling: Sampling, longest: int | None, made: int) -> Sampling:
        """With what this task ends at, and less what was made already."""
        ends = {*sampling.stop_token_ids, *self._vocabulary.ends}
        if self._speaks:
            # What comes after is said by nobody.
            ends.add(self._vocabulary.tts_end)
        most = sampling.max_tokens if longest is None else min(sampling.max_tokens, ids_for(longest))
        return replace(
            sampling,
            max_tokens=most - made,
            min_tokens=max(0, min(sampling.min_tokens, most) - made),
            stop_token_ids=tuple(sorted(ends)),
        )

    def _delta(self, part: Part) -> ThinkerDelta:
        text = self._spelling.add(part.text_ids, last=part.finish in ("stop", "length"))
        self._texts.append(text)
        self._text_tokens += len(part.text_ids)
        self._audio_tokens += len(part.codes)
        return ThinkerDelta(text=text, tokens=part.codes if self._speaks else (), output_ids=part.ids)

    def _last(self, finish: str, prompt_tokens: int) -> ThinkerDelta:
        request = self._request
        if self._speaks and not self._audio_tokens:
            raise StagewaveError(ErrorCode.NO_AUDIO, "the model answered without any audio")
        text = "".join(self._texts).strip()
        segments: tuple[Segment, ...] = ()
        if request.task is Task.ASR and request.audio is not None and text:
            segments = (Segment(text, 0.0, len(request.audio) / THINKER_RATE_HZ),)
        return ThinkerDelta(
            segments=segments,
            language=request.language,
            progress=1.0,
            finish_reason=finish,
            usage=Usage(prompt_tokens, self._text_tokens, self._audio_tokens),
        )


def _already(prior: tuple[int, ...], made: Part, sampling: Sampling, longest: int | None) -> str | None:
    """How an answer has ended that an earlier attempt had made to its end, if it had."""
    if prior and prior[-1] in sampling.stop_token_ids:
        return "stop"
    if sampling.max_tokens <= 0 or (longest is not None and len(made.codes) >= longest):
        return "length"
    return None


def _check(request: GenerateRequest) -> None:
    if request.task is Task.TTS:
        if not request.text.strip():
            raise StagewaveError(
                ErrorCode.TEXT_EMPTY, "the text has nothing that can be said", field="text"
            )
        return
    if request.audio is None or not len(request.audio):
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the audio has no samples", field="audio")
    if request.word_timestamps:
        raise StagewaveError(
            ErrorCode.INVALID_REQUEST,
            "this model does not tell when a word was said",
            field="word_timestamps",
        )
