"""Runs one Thinker attempt: input in, text and tokens out, tokens handed on as they complete windows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from stage_pipeline.audio.recording import Recording
from stage_pipeline.audio.transcript import to_json
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.long_form.account import PieceResult
from stage_pipeline.messages import ThinkerResult
from stage_pipeline.stages import Thinker
from workers.attempt import Attempt, AttemptLost
from workers.backend import Backend
from workers.bell import ENOUGH
from workers.breaker import Breaker
from workers.job import JsonObject
from workers.recordings import Recordings
from workers.results import remove_other_attempts, transcript_key
from workers.spool import Spool
from workers.states import Stage
from workers.teller import Teller
from workers.thinker_pieces import ThinkerPieces
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
        self._spool = spool
        self._recordings = Recordings(backend, breaker, deploy.limits.audio_s)
        stage = deploy.stage(0)
        # So many of the engine's places, at most, are taken by pieces that run before their turn.
        self._spare = threading.BoundedSemaphore(max(1, (stage.max_num_seqs if stage else 1) // 2))

    def run(self, attempt: Attempt) -> None:
        """Raises ``StagewaveError`` for a failure, ``AttemptLost`` or ``FencedOff`` when it is not ours."""
        spec = attempt.job.spec
        writer = self._open(attempt) if _speaks(attempt) else None
        if writer and writer.finished:
            # The attempt before died between its last chunk and saying so.
            self._hand_on(attempt, done=True)
            return
        with ExitStack() as stack:
            recording = None
            if spec.audio is not None:
                folder = stack.enter_context(self._spool.attempt_folder())
                recording = self._recordings.take(attempt, spec.audio, folder)
            if writer is None and recording and self._is_long(recording):
                # It keeps the whole pieces of a long recording, for an attempt that comes after.
                writer = self._open(attempt)
            pieces = ThinkerPieces(self._engine, attempt, recording, writer)
            teller = Teller(self._backend.events, attempt.job)
            if attempt.number > 1:
                teller.restart(pieces.account)
            pieces.run(teller, self._spare, self._begin(attempt))
        made = pieces.account.whole()
        result = replace(
            made.result,
            audio_in_s=round(recording.duration_s, 3) if recording else 0.0,
            transcript_key=self._store_transcript(attempt, made, recording) if recording else None,
        )
        if _speaks(attempt):
            pieces.finish(result)
            self._hand_on(attempt, done=True)
        else:
            self._succeed(attempt, result, kept=writer is not None)

    def _open(self, attempt: Attempt) -> TokenWriter:
        afresh = _speaks(attempt) and not self._engine.resumes_from_tokens
        return self._backend.tokens.open(attempt.job.id, attempt.number, afresh=afresh)

    def _is_long(self, recording: Recording) -> bool:
        longest_s = self._engine.longest_audio_s
        return longest_s is not None and recording.duration_s > longest_s

    def _begin(self, attempt: Attempt) -> Callable[[], None]:
        """Starts Token2Wav, once, and only when somebody listens: others get more out of whole pieces. It
        waits for its first tokens there, with all that it needs besides them."""
        started = not _speaks(attempt)

        def begin() -> None:
            nonlocal started
            if attempt.listening and not started:
                self._hand_on(attempt, done=False)
                started = True

        return begin

    def _hand_on(self, attempt: Attempt, *, done: bool) -> None:
        held, pool = self._backend.claims.start_next(attempt.claim, done=done, streamed=not done)
        if not held:
            raise AttemptLost
        if pool is not None:
            # Where many jobs come, a bell that waits already will find this one too.
            self._backend.bell.ring(pool, enough=1 if attempt.job.spec.batch_id else ENOUGH)

    def _store_transcript(self, attempt: Attempt, made: PieceResult, recording: Recording) -> str:
        key = transcript_key(attempt.job.id, attempt.number)
        body = to_json(
            made.segments,
            text=made.result.text,
            source_text=made.result.source_text,
            language=made.result.language,
            duration_s=recording.duration_s,
        )
        data = json.dumps(body, ensure_ascii=False).encode()
        self._breaker.call(attempt, lambda: self._backend.objects.put_bytes(key, data, "application/json"))
        return key

    def _succeed(self, attempt: Attempt, result: ThinkerResult, *, kept: bool) -> None:
        job, key = attempt.job, result.transcript_key
        summary: JsonObject = {
            "text": result.text,
            "language": result.language,
            "finish_reason": result.finish_reason,
            "transcript_key": key,
        }
        if not self._backend.claims.succeed(attempt.claim, summary, usage_of(result)):
            if key:
                self._backend.objects.delete(key)
            return
        if kept:
            self._backend.streams.drop_tokens(job.id)
        if attempt.number > 1:
            remove_other_attempts(self._backend.objects, job.id, {key or ""})


def _speaks(attempt: Attempt) -> bool:
    return Stage.TOKEN2WAV in attempt.job.spec.stages


def usage_of(result: ThinkerResult, audio_out_s: float = 0.0) -> JsonObject:
    """The ``usage`` of a job's record."""
    return {
        "prompt_tokens": result.prompt_tokens,
        "text_tokens": result.text_tokens,
        "audio_tokens": result.audio_tokens,
        "audio_in_s": result.audio_in_s,
        "audio_out_s": round(audio_out_s, 3),
    }
