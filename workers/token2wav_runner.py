"""Runs one Token2Wav attempt: token chunks in; audio out, live to listeners, whole to the object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from stage_pipeline.audio.encode import FileEncoder
from stage_pipeline.audio.formats import AUDIO_FORMATS
from stage_pipeline.chunking import Window
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.messages import ThinkerResult, wave_to_pcm16
from stage_pipeline.stages import Float32Wave, Token2Wav
from workers.attempt import Attempt
from workers.audio_channel import AudioWriter
from workers.backend import Backend
from workers.breaker import Breaker
from workers.job import JsonObject
from workers.results import audio_key, remove_other_attempts
from workers.spool import Spool
from workers.states import Stage
from workers.thinker_runner import usage_of
from workers.token_channel import StreamRestarted

_BLOCK_BYTES = 64 * 1024
_PROGRESS_EVERY_S = 1.0


class Token2WavRunner:
    """One for a process; ``run`` is called from many threads."""

    stage = Stage.TOKEN2WAV

    def __init__(
        self, backend: Backend, engine: Token2Wav, deploy: DeployConfig, spool: Spool, breaker: Breaker
    ) -> None:
        self._backend = backend
        self._breaker = breaker
        self._engine = engine
        self._deploy = deploy
        self._spool = spool

    def run(self, attempt: Attempt) -> None:
        """Raises ``StagewaveError`` for a failure, ``AttemptLost`` or ``FencedOff`` when it is not ours."""
        afresh = False
        while True:
            try:
                with self._spool.attempt_folder() as folder:
                    self._make(attempt, folder, afresh)
                return
            except StreamRestarted:
                self._backend.events.append(attempt.job.id, "restart", {"stage": "token2wav"})
                afresh = True

    def _make(self, attempt: Attempt, folder: Path, afresh: bool) -> None:
        path = folder / "audio"
        form = attempt.job.spec.response_format
        tokens = _Tokens(self._backend, attempt, self._engine)
        with (
            FileEncoder(path, form, self._engine.sample_rate) as encoder,
            (folder / "pcm").open("w+b") as pcm,
        ):
            recording = _Recording(self._backend, attempt, encoder, pcm, self._engine.sample_rate, afresh)
            self._voice(attempt, tokens, recording)
            if recording.samples == 0:
                raise StagewaveError(ErrorCode.NO_AUDIO, "the model made no audio")
            recording.close()
            encoder.close()
        attempt.check()
        self._conclude(attempt, tokens.result, recording, path)

    def _voice(self, attempt: Attempt, tokens: _Tokens, recording: _Recording) -> None:
        spec = attempt.job.spec
        most_samples = int(self._deploy.limits.audio_out_s * self._engine.sample_rate)
        stream = self._engine.open(spec.voice, spec.seed)
        with closing(stream):
            for window in tokens.windows():
                part = tuple(tokens.history[window.start : window.stop])
                for wave in stream.feed(part, window.final):
                    attempt.check()
                    recording.add(wave[: most_samples - recording.samples])
                    if recording.samples >= most_samples:
                        recording.cut_short = True
                        return

    def _conclude(self, attempt: Attempt, result: ThinkerResult, recording: _Recording, path: Path) -> None:
        job, objects = attempt.job, self._backend.objects
        form = AUDIO_FORMATS[job.spec.response_format]
        key = audio_key(job.id, attempt.number, form.extension)
        size_bytes = self._breaker.call(attempt, lambda: objects.put_file(key, path, form.content_type))
        audio: JsonObject = {
            "format": job.spec.response_format,
            "content_type": form.content_type,
            "sample_rate_hz": self._engine.sample_rate,
            "duration_s": round(recording.duration_s, 3),
            "size_bytes": size_bytes,
        }
        summary: JsonObject = {
            "text": result.text or job.spec.text,
            "source_text": result.source_text or None,
            "language": result.language,
            "finish_reason": "length" if recording.cut_short else result.finish_reason,
            "audio": audio,
            "audio_key": key,
        }
        if result.transcript_key:
            summary["transcript_key"] = result.transcript_key
        usage = usage_of(result, recording.duration_s)
        if not self._backend.jobs.succeed(attempt.claim, summary, usage):
            objects.delete(key)
            return
        self._backend.jobs.drop_tokens(job.id)
        if attempt.number > 1 or job.attempts.get(Stage.THINKER, 1) > 1:
            remove_other_attempts(objects, job.id, {key, result.transcript_key or ""})


class _Tokens:
    """The job's tokens as windows: followed while they are made, or whole when nobody listens."""

    def __init__(self, backend: Backend, attempt: Attempt, engine: Token2Wav) -> None:
        self._backend = backend
        self._attempt = attempt
        self._policy = engine.chunk_policy
        self.history: list[int] = []
        self.result = ThinkerResult()

    def windows(self) -> Iterator[Window]:
        if self._attempt.job.streamed:
            yield from self._followed()
        else:
            self._take_all()
            yield Window(0, len(self.history), len(self.history), final=True)

    def _followed(self) -> Iterator[Window]:
        consumed = 0
        for chunk in self._backend.tokens.follow(self._attempt.job.id):
            self._attempt.check()
            if chunk is None:
                continue
            self.history.extend(chunk.tokens)
            self.result = chunk.result or self.result
            while (window := self._policy.next_window(self.history, consumed, chunk.final)) is not None:
                consumed = window.consumed
                yield window
                if window.final:
                    return

    def _take_all(self) -> None:
        chunks = self._backend.tokens.chunks(self._attempt.job.id)
        if not chunks or chunks[-1].result is None:
            raise StagewaveError(ErrorCode.INTERNAL, "the audio tokens of this job are incomplete")
        self.history = [token for chunk in chunks for token in chunk.tokens]
        self.result = chunks[-1].result


class _Recording:
    """The audio of one attempt: encoded to a file, kept as PCM for a listener who comes late, and sent
    on live from the moment somebody listens."""

    def __init__(
        self,
        backend: Backend,
        attempt: Attempt,
        encoder: FileEncoder,
        pcm: BinaryIO,
        rate_hz: int,
        afresh: bool,
    ) -> None:
        self._backend = backend
        self._attempt = attempt
        self._rate_hz = rate_hz
        self._afresh = afresh
        self._encoder = encoder
        self._pcm = pcm
        self._live: AudioWriter | None = None
        self._told_s = 0.0
        self.samples = 0
        self.cut_short = False

    @property
    def duration_s(self) -> float:
        return self.samples / self._rate_hz

    def add(self, wave: Float32Wave) -> None:
        pcm = wave_to_pcm16(wave)
        if not pcm:
            return
        if self._live is None and self._attempt.listening:
            self._go_live()
        if self._live is not None:
            self._live.write(pcm)
        if self.samples == 0:
            self._backend.jobs.first_audio(self._attempt.claim)
        self._pcm.write(pcm)
        self._encoder.write(pcm)
        self.samples += len(wave)
        self._tell_progress()

    def close(self) -> None:
        """The utterance is complete: listeners need not wait for its upload."""
        if self._live is None and self._attempt.listening:
            self._go_live()
        if self._live is not None:
            self._live.close()

    def _go_live(self) -> None:
        job = self._attempt.job
        self._live = self._backend.audio.open(
            job.id, self._attempt.number, self._rate_hz, afresh=self._afresh
        )
        self._pcm.seek(0)
        while block := self._pcm.read(_BLOCK_BYTES):
            self._live.write(block)

    def _tell_progress(self) -> None:
        if self.duration_s - self._told_s >= _PROGRESS_EVERY_S:
            self._told_s = self.duration_s
            told: JsonObject = {"stage": "token2wav", "audio_s": round(self.duration_s, 2)}
            self._backend.events.append(self._attempt.job.id, "progress", told)
