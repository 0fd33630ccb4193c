"""Runs one Thinker attempt: input in, text and tokens out, tokens handed on as they complete windows."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from stage_pipeline.audio.decode import decode_audio
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.transcript import to_json
from stage_pipeline.chunking import ChunkPolicy
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.messages import ThinkerResult
from stage_pipeline.stages import (
    THINKER_RATE_HZ,
    Float32Wave,
    GenerateRequest,
    Segment,
    Task,
    Thinker,
    ThinkerDelta,
    Usage,
)
from workers.attempt import Attempt, AttemptLost
from workers.backend import Backend
from workers.breaker import Breaker
from workers.job import JsonObject
from workers.results import input_key, remove_other_attempts, transcript_key
from workers.spool import Spool
from workers.states import Stage
from workers.token_channel import TokenWriter


class ThinkerRunner:
    """One for a process; ``run`` is called from many threads."""

    stage = Stage.THINKER

    def __init__(
        self, backend: Backend, engine: Thinker, deploy: DeployConfig, spool: Spool, breaker: Breaker
    ) -> None:
        self._backend = backend
        self._breaker = breaker
        self._engine = engine
        self._deploy = deploy
        self._spool = spool
        # A decoder may be a process of its own, and there may be hundreds of jobs at a time.
        self._decoding = threading.BoundedSemaphore(os.cpu_count() or 1)

    def run(self, attempt: Attempt) -> None:
        """Raises ``StagewaveError`` for a failure, ``AttemptLost`` or ``FencedOff`` when it is not ours."""
        speaks = Stage.TOKEN2WAV in attempt.job.spec.stages
        writer = None
        if speaks:
            afresh = not self._engine.resumes_from_tokens
            writer = self._backend.tokens.open(attempt.job.id, attempt.number, afresh=afresh)
            if writer.finished:
                # The attempt before died between its last chunk and saying so.
                self._hand_on(attempt, done=True)
                return
        if attempt.number > 1 and attempt.job.spec.type is not Task.TTS:
            # What is told from here on begins anew; tokens and audio go on where they were.
            self._backend.events.append(attempt.job.id, "restart", {"stage": self.stage.value})
        heard = self._heard(attempt)
        handover = _Handover(self._engine.chunk_policy, writer) if writer else None
        account = _Account()
        self._generate(attempt, self._request(attempt, heard, writer), account, handover)
        self._conclude(attempt, account, handover, heard)

    def _generate(
        self, attempt: Attempt, request: GenerateRequest, account: _Account, handover: _Handover | None
    ) -> None:
        attempt.on_end(lambda: self._engine.abort(request.request_id))
        started = False
        for delta in self._engine.generate(request):
            attempt.check()
            account.add(delta)
            self._tell(attempt, delta)
            if handover is None:
                continue
            handover.add(delta)
            if attempt.listening and handover.sent and not started:
                self._hand_on(attempt, done=False)
                started = True
        attempt.check()

    def _conclude(
        self,
        attempt: Attempt,
        account: _Account,
        handover: _Handover | None,
        heard: Float32Wave | None,
    ) -> None:
        audio_in_s = 0.0 if heard is None else len(heard) / THINKER_RATE_HZ
        key = self._store_transcript(attempt, account, audio_in_s) if heard is not None else None
        result = account.result(audio_in_s, key)
        if handover is not None:
            handover.finish(result)
            self._hand_on(attempt, done=True)
            return
        job = attempt.job
        summary: JsonObject = {
            "text": result.text,
            "language": result.language,
            "finish_reason": result.finish_reason,
            "transcript_key": key,
        }
        if self._backend.jobs.succeed(attempt.claim, summary, usage_of(result)):
            if attempt.number > 1:
                remove_other_attempts(self._backend.objects, job.id, {key or ""})
        elif key:
            self._backend.objects.delete(key)

    def _heard(self, attempt: Attempt) -> Float32Wave | None:
        """The job's audio, mono at the Thinker's rate; None when it has none."""
        source = attempt.job.spec.audio
        if source is None:
            return None
        key = source.key if source.kind == "s3" and source.key else input_key(attempt.job.id)
        with self._spool.attempt_folder() as folder:
            path = folder / "input"
            self._breaker.call(attempt, lambda: self._download(key, path))
            attempt.check()
            limits = DecodeLimits(
                size_bytes=self._backend.settings.max_upload_bytes, duration_s=self._deploy.limits.audio_s
            )
            with self._decoding, path.open("rb") as file:
                return decode_audio(
                    file, rate_hz=THINKER_RATE_HZ, limits=limits, between=attempt.check
                ).wave

    def _download(self, key: str, path: Path) -> None:
        try:
            self._backend.objects.download(key, path, self._backend.settings.max_upload_bytes)
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise StagewaveError(ErrorCode.FETCH_FAILED, "the audio object does not exist") from error
            raise

    def _request(
        self, attempt: Attempt, heard: Float32Wave | None, writer: TokenWriter | None
    ) -> GenerateRequest:
        spec = attempt.job.spec
        return GenerateRequest(
            request_id=attempt.request_id,
            task=spec.type,
            text=spec.text,
            audio=heard,
            language=spec.language,
            target_language=spec.target_language,
            instructions=spec.instructions,
            voice=spec.voice,
            word_timestamps=spec.word_timestamps,
            sampling=spec.sampling_params_list[0] if spec.sampling_params_list else {},
            prior_tokens=writer.prior_tokens if writer else (),
        )

    def _tell(self, attempt: Attempt, delta: ThinkerDelta) -> None:
        """Text and progress as events. What is spoken as given (TTS) is no news to anybody."""
        events, job = self._backend.events, attempt.job
        if job.spec.type is Task.TTS:
            return
        if delta.text or delta.source_text:
            told: JsonObject = {"text": delta.text}
            if delta.source_text:
                told["source_text"] = delta.source_text
            events.append(job.id, "text", told)
        for segment in delta.segments:
            body: JsonObject = {"text": segment.text, "start_s": segment.start_s, "end_s": segment.end_s}
            events.append(job.id, "segment", body)
        if delta.progress is not None:
            events.append(job.id, "progress", {"stage": "thinker", "share": round(delta.progress, 4)})

    def _hand_on(self, attempt: Attempt, *, done: bool) -> None:
        held, pool = self._backend.jobs.start_next(attempt.claim, done=done, streamed=not done)
        if not held:
            raise AttemptLost
        if pool is not None:
            self._backend.bell.ring(pool)

    def _store_transcript(self, attempt: Attempt, account: _Account, duration_s: float) -> str:
        key = transcript_key(attempt.job.id, attempt.number)
        body = to_json(
            account.segments,
            text=account.text,
            source_text=account.source_text,
            language=account.language,
            duration_s=duration_s,
        )
        data = json.dumps(body, ensure_ascii=False).encode()
        self._breaker.call(attempt, lambda: self._backend.objects.put_bytes(key, data, "application/json"))
        return key


class _Account:
    """What an attempt has made so far."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._sources: list[str] = []
        self.segments: list[Segment] = []
        self.language: str | None = None
        self._finish_reason = "stop"
        self._usage = Usage()

    def add(self, delta: ThinkerDelta) -> None:
        self._texts.append(delta.text)
        self._sources.append(delta.source_text)
        self.segments.extend(delta.segments)
        self.language = delta.language or self.language
        self._finish_reason = delta.finish_reason or self._finish_reason
        self._usage = delta.usage or self._usage

    @property
    def text(self) -> str:
        return "".join(self._texts).strip()

    @property
    def source_text(self) -> str:
        return "".join(self._sources).strip()

    def result(self, audio_in_s: float, key: str | None) -> ThinkerResult:
        return ThinkerResult(
            text=self.text,
            source_text=self.source_text,
            language=self.language,
            finish_reason=self._finish_reason,
            prompt_tokens=self._usage.prompt_tokens,
            text_tokens=self._usage.text_tokens,
            audio_tokens=self._usage.audio_tokens,
            audio_in_s=round(audio_in_s, 3),
            transcript_key=key,
        )


class _Handover:
    """Sends tokens on as soon as they complete a window, so that what is sent can be voiced at once."""

    def __init__(self, policy: ChunkPolicy, writer: TokenWriter) -> None:
        self._policy = policy
        self._writer = writer
        self._history = list(writer.prior_tokens)
        self._sent = len(self._history)
        self._consumed = 0
        self._advance()

    @property
    def sent(self) -> bool:
        """Whether Token2Wav has anything to begin with."""
        return self._sent > 0

    def add(self, delta: ThinkerDelta) -> None:
        self._history.extend(token for token in delta.tokens if self._policy.keeps(token))
        complete = self._advance()
        if complete > self._sent:
            self._writer.send(self._history[self._sent : complete])
            self._sent = complete

    def finish(self, result: ThinkerResult) -> None:
        self._writer.send(self._history[self._sent :], result)

    def _advance(self) -> int:
        """The end of the last complete window."""
        complete = self._sent
        while (window := self._policy.next_window(self._history, self._consumed, False)) is not None:
            self._consumed = window.consumed
            complete = max(complete, window.stop)
        return complete


def usage_of(result: ThinkerResult, audio_out_s: float = 0.0) -> JsonObject:
    """The ``usage`` of a job's record."""
    return {
        "prompt_tokens": result.prompt_tokens,
        "text_tokens": result.text_tokens,
        "audio_tokens": result.audio_tokens,
        "audio_in_s": result.audio_in_s,
        "audio_out_s": round(audio_out_s, 3),
    }
