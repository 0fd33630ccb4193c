"""Runs one Token2Wav attempt: token chunks in; audio out, live to listeners, whole to the object store."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import IO

from stage_pipeline.audio.encode import FileEncoder
from stage_pipeline.audio.formats import AUDIO_FORMATS
from stage_pipeline.audio.loudness import Gain, LiveGain, WholeGain
from stage_pipeline.audio.resampler import Resampler
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.long_form.joins import Joins
from stage_pipeline.messages import wave_to_pcm16
from stage_pipeline.stages import Float32Wave, Token2Wav, Token2WavStream
from workers.attempt import Attempt
from workers.audio_channel import AudioWriter
from workers.backend import Backend
from workers.breaker import Breaker
from workers.job import JsonObject
from workers.object_store import ObjectStore
from workers.results import audio_key, remove_other_attempts
from workers.spool import Spool
from workers.states import Stage, pool_of
from workers.thinker_runner import usage_of
from workers.token_channel import StreamRestarted
from workers.token_feed import TokenFeed
from workers.voice_preparer import VoicePreparer
from workers.voiced_parts import VoicedParts

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
        # Somebody may be listening while a part is stored.
        self._hurried = ObjectStore(backend.settings, patient=False)
        self._hurried.load()
        self.voices = VoicePreparer(backend, engine, pool_of(self.stage, deploy.model), breaker)

    def run(self, attempt: Attempt) -> None:
        """Raises ``StagewaveError`` for a failure, ``AttemptLost`` or ``FencedOff`` when it is not ours."""
        afresh = False
        while True:
            try:
                with self._spool.file() as made, self._spool.file() as pcm:
                    self._make(attempt, made, pcm, afresh)
                return
            except StreamRestarted:
                self._backend.events.append(attempt.job.id, "restart", {"stage": "token2wav"})
                afresh = True

    def _make(self, attempt: Attempt, made: IO[bytes], pcm: IO[bytes], afresh: bool) -> None:
        spec = attempt.job.spec
        resampler = Resampler(self._engine.sample_rate, spec.sample_rate_hz or self._engine.sample_rate)
        with ExitStack() as stack:
            # All that can be done before the first tokens come.
            first = stack.enter_context(closing(self._open(attempt)))
            encoder = stack.enter_context(FileEncoder(made, spec.response_format, resampler.out_hz))
            recording = _Recording(self._backend, attempt, encoder, pcm, resampler, afresh)
            feed = TokenFeed(self._backend, attempt, self._engine.chunk_policy)
            parts = VoicedParts(
                self._hurried, self._breaker, attempt, feed.begun_by, self._engine.sample_rate
            )
            self._voice(attempt, first, feed, parts, recording)
            recording.close()
            encoder.close()
        feed.finish()
        attempt.check()
        self._conclude(attempt, feed, recording, made, parts)

    def _voice(
        self,
        attempt: Attempt,
        first: Token2WavStream,
        feed: TokenFeed,
        parts: VoicedParts,
        recording: _Recording,
    ) -> None:
        most_samples = int(self._deploy.limits.audio_out_s * self._engine.sample_rate)
        with closing(self._waves(attempt, first, feed, parts)) as waves:
            for wave in waves:
                recording.add(wave[: most_samples - recording.samples])
                if recording.samples >= most_samples:
                    recording.cut_short = True
                    return

    def _waves(
        self, attempt: Attempt, first: Token2WavStream, feed: TokenFeed, parts: VoicedParts
    ) -> Generator[Float32Wave]:
        """All of the sound. Each piece is an utterance of its own, in the same voice; they are joined.
        ``first``: the stream for the one that comes first."""
        spec, before = attempt.job.spec, 0
        if attempt.number > 1:
            for wave in parts.restore():
                before += len(wave)
                yield wave
            feed.skip(parts.pieces)
        joins = Joins(self._engine.sample_rate, before)
        stream: Token2WavStream | None = first
        begins, voiced = True, before > 0
        try:
            for part in feed:
                stream = stream or self._open(attempt)
                if begins:
                    yield from map(parts.add, joins.until(part.at_ms or 0))
                begins = part.final
                for wave in attempt.steps(stream.feed(part.tokens, part.final)):
                    voiced = voiced or len(wave) > 0
                    yield parts.add(joins.add(wave))
                if not part.final:
                    continue
                stream.close()
                stream = None
                if part.pause_after_ms is not None:
                    yield parts.add(joins.join(part.pause_after_ms))
                    parts.end_piece()
                else:
                    yield joins.join(0) if spec.keep_timing else joins.finish()
        finally:
            if stream is not None:
                stream.close()
        if not voiced:
            raise StagewaveError(ErrorCode.NO_AUDIO, "the model made no audio")
        if spec.keep_timing:
            yield from joins.until(round(1000 * feed.result.audio_in_s))

    def _open(self, attempt: Attempt) -> Token2WavStream:
        spec, voice_id = attempt.job.spec, attempt.job.voice_id
        features = None if voice_id is None else partial(self.voices.features, attempt, voice_id)
        return self._engine.open(
            voice_id or spec.voice,
            spec.seed,
            speed=spec.speed,
            features=features,
            background=attempt.background,
        )

    def _conclude(
        self,
        attempt: Attempt,
        feed: TokenFeed,
        recording: _Recording,
        made: IO[bytes],
        parts: VoicedParts,
    ) -> None:
        job, result, objects = attempt.job, feed.result, self._backend.objects
        form = AUDIO_FORMATS[job.spec.response_format]
        key = audio_key(job.id, attempt.number, form.extension)

        def store() -> int:
            made.seek(0)
            return objects.put_file(key, made, form.content_type)

        size_bytes = self._breaker.call(attempt, store)
        audio: JsonObject = {
            "format": job.spec.response_format,
            "content_type": form.content_type,
            "sample_rate_hz": recording.rate_hz,
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
        if not self._backend.claims.succeed(attempt.claim, summary, usage):
            objects.delete(key)
            return
        self._backend.streams.drop_tokens(job.id)
        if parts.any or attempt.number > 1 or feed.ended_by > 1:
            remove_other_attempts(objects, job.id, {key, result.transcript_key or ""})


class _Recording:
    """The audio of one attempt: encoded to a file, kept as PCM for a listener who comes late, and sent
    on live from the moment somebody listens. All of it at the rate that was asked for; at the loudness that
    was asked for once it is whole, or following it from the start if somebody listened: then the file has
    what was heard."""

    def __init__(
        self,
        backend: Backend,
        attempt: Attempt,
        encoder: FileEncoder,
        pcm: IO[bytes],
        resampler: Resampler,
        afresh: bool,
    ) -> None:
        self._backend = backend
        self._attempt = attempt
        self.rate_hz = resampler.out_hz
        self._resampler = resampler
        self._loudness = attempt.job.spec.loudness
        self._gain: LiveGain | None = None
        self._afresh = afresh
        self._encoder = encoder
        self._pcm = pcm
        self._live: AudioWriter | None = None
        self._told_s = 0.0
        self.samples = 0
        self.cut_short = False

    @property
    def duration_s(self) -> float:
        return self.samples / self._resampler.in_hz

    def add(self, wave: Float32Wave) -> None:
        if not len(wave):
            return
        if self._live is None and self._attempt.listening:
            self._go_live()
        first, self.samples = self.samples == 0, self.samples + len(wave)
        self._keep(wave_to_pcm16(self._resampler.feed(wave)))
        if first:
            self._backend.claims.first_audio(self._attempt.claim)
        self._tell_progress()

    def close(self) -> None:
        """The utterance is complete: listeners need not wait for its upload."""
        self._keep(wave_to_pcm16(self._resampler.finish()))
        if self._live is None and self._attempt.listening:
            self._go_live()
        if self._live is not None:
            if self._gain is not None:
                self._live.write(self._gain.finish())
            self._live.close()
        if self._loudness is not None:
            self._encode(self._loudness)

    def _keep(self, pcm: bytes) -> None:
        self._send(pcm)
        self._pcm.write(pcm)
        if self._loudness is None:
            self._encoder.write(pcm)

    def _send(self, pcm: bytes) -> None:
        if self._live is not None:
            self._live.write(pcm if self._gain is None else self._gain.feed(pcm))

    def _encode(self, loudness: float) -> None:
        gain: Gain
        if self._live is None:
            gain = WholeGain(loudness, self.rate_hz, self._kept())
        else:
            gain = LiveGain(loudness, self.rate_hz)
        for block in self._kept():
            self._encoder.write(gain.feed(block))
        self._encoder.write(gain.finish())

    def _kept(self) -> Iterator[bytes]:
        self._pcm.seek(0)
        while block := self._pcm.read(_BLOCK_BYTES):
            yield block

    def _go_live(self) -> None:
        job = self._attempt.job
        self._live = self._backend.audio.open(
            job.id, self._attempt.number, self.rate_hz, afresh=self._afresh
        )
        if self._loudness is not None:
            self._gain = LiveGain(self._loudness, self.rate_hz)
        for block in self._kept():
            self._send(block)

    def _tell_progress(self) -> None:
        if self.duration_s - self._told_s >= _PROGRESS_EVERY_S:
            self._told_s = self.duration_s
            told: JsonObject = {"stage": "token2wav", "audio_s": round(self.duration_s, 2)}
            self._backend.events.append(self._attempt.job.id, "progress", told)
