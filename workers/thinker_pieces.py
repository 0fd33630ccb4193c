"""The pieces of one Thinker attempt: cut, run, and handed on in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Semaphore

from stage_pipeline.audio.recording import Recording
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.long_form.account import Account, PieceResult
from stage_pipeline.long_form.piece import Piece
from stage_pipeline.long_form.piece_runs import PieceRun, PieceRuns
from stage_pipeline.long_form.speech_cut import cut_speech
from stage_pipeline.long_form.text_cut import cut_text
from stage_pipeline.messages import PieceEnd, ThinkerResult
from stage_pipeline.stages import Float32Wave, GenerateRequest, Task, Thinker
from workers.attempt import Attempt
from workers.handover import Handover
from workers.teller import Teller
from workers.token_channel import TokenWriter

_TIMED_PIECE_S = 25.0
"""The longest piece of a job that keeps its timing, for an engine that hears any length."""
_NOTHING_IN_IT = {
    Task.TTS: (ErrorCode.TEXT_EMPTY, ErrorCode.LANGUAGE_UNSUPPORTED),
    Task.ASR: (ErrorCode.AUDIO_EMPTY,),
    Task.S2ST: (ErrorCode.AUDIO_EMPTY, ErrorCode.NO_AUDIO),
}
"""What is no failure of one piece among others: somebody only laughed in it, or quoted a foreign poem."""
_TIMES_AGAIN = 2
"""How often a model that spoke no text is asked again, each time with another seed."""


class ThinkerPieces:
    """One attempt's. It goes on after the pieces that are whole in the channel, and inside the one that an
    earlier attempt had under way."""

    def __init__(
        self, engine: Thinker, attempt: Attempt, recording: Recording | None, writer: TokenWriter | None
    ) -> None:
        """``writer``: the job's channel; None for a job that does not speak and is one piece."""
        self._engine = engine
        self._attempt = attempt
        self._spec = attempt.job.spec
        self._recording = recording
        self._writer = writer
        self._handover: Handover | None = None
        prior = writer.prior_pieces if writer else ()
        self.account = Account(self._spec.type, [PieceResult(end.result, end.segments) for end in prior])

    def run(self, teller: Teller, spare: Semaphore, begin: Callable[[], None]) -> None:
        """All pieces; what they came to is in ``account``. ``begin`` is called before each
        piece and after each step: Token2Wav may begin beside it. Raises ``StagewaveError``."""
        total = self._recording.samples if self._recording else len(self._spec.text)
        runs = PieceRuns(self._engine, self._requests(), spare)
        self._attempt.on_end(runs.abort)
        ended: tuple[Piece, PieceResult] | None = None
        nothing: StagewaveError | None = None
        try:
            for run in runs:
                self._open(run.piece, ended)
                try:
                    self._make(runs, run, total, teller, begin)
                except StagewaveError as error:
                    if error.code not in _NOTHING_IN_IT[self._spec.type]:
                        raise
                    nothing = error
                self._attempt.check()
                result, rest = self.account.end()
                teller.tell(rest)
                ended = run.piece, result
                if result.result.finish_reason == "length" and self._is_limited:
                    break
        finally:
            runs.abort()
        self._attempt.check()
        self._check_made(nothing)

    def _make(
        self, runs: PieceRuns, run: PieceRun, total: int, teller: Teller, begin: Callable[[], None]
    ) -> None:
        """One piece. A model that says nothing is asked again: of a book, one sentence would end it all."""
        deltas, again = run.deltas, 0
        while True:
            self.account.begin(run.piece, total)
            try:
                begin()
                for delta in self._attempt.steps(deltas):
                    teller.tell(self.account.add(delta))
                    if self._handover:
                        self._handover.add(delta)
                    begin()
                return
            except StagewaveError as error:
                mute = error.code is ErrorCode.NO_AUDIO and self._spec.type is Task.TTS
                if not mute or again == _TIMES_AGAIN:
                    raise
                again += 1
                other = replace(run.request, seed=run.request.seed + again)
                deltas = runs.again(other)

    def finish(self, result: ThinkerResult) -> None:
        """Hand the job's result on, with the last tokens."""
        if self._handover:
            self._handover.finish(result)

    def _open(self, piece: Piece, before: tuple[Piece, PieceResult] | None) -> None:
        if self._writer is None:
            return
        prior = self._writer.prior_tokens
        if self._handover and before:
            at, made = before
            self._handover.end(PieceEnd(at.pause_after_ms, made.result, made.segments))
            prior = ()
        self._handover = Handover(self._engine.chunk_policy, self._writer, prior, piece.at_ms)

    def _check_made(self, nothing: StagewaveError | None) -> None:
        """One piece without words is no error, a job without any is; but silence may be recognised."""
        spoken = self._writer and self._writer.began or self._handover and self._handover.any
        if nothing and not spoken and not (self._spec.type is Task.ASR and self.account.told[0]):
            raise nothing
        if self._handover is None and self._spec.type is Task.TTS:
            raise StagewaveError(
                ErrorCode.TEXT_EMPTY, "the text has nothing that can be said", field="text"
            )
        if self._handover is None and self._spec.type is Task.S2ST:
            raise StagewaveError(ErrorCode.AUDIO_EMPTY, "no speech was heard in the audio", field="audio")

    def _pieces(self) -> Iterator[Piece]:
        recording, spec = self._recording, self._spec
        if recording is None:
            if (longest_chars := self._engine.longest_text_chars) is None:
                return iter([Piece(0, len(spec.text), spec.text)])
            return cut_text(spec.text, longest_chars, spec.language)
        if self._hears_all:
            return iter([Piece(0, recording.samples)])
        longest_s = self._engine.longest_audio_s or _TIMED_PIECE_S
        return cut_speech(recording, longest_s, timed=spec.keep_timing, between=self._attempt.check)

    @property
    def _hears_all(self) -> bool:
        """Whether the recording goes to the engine as it is."""
        return self._engine.longest_audio_s is None and not self._spec.keep_timing

    @property
    def _is_limited(self) -> bool:
        """Whether the client has said how much may be made: the piece that came to it is the last."""
        said = next(iter(self._spec.sampling_params_list), {})
        return self._spec.type is not Task.ASR and "max_tokens" in said

    def _requests(self) -> Iterator[tuple[Piece, GenerateRequest]]:
        spec, writer = self._spec, self._writer
        done = len(writer.prior_pieces) if writer else 0
        for index, piece in enumerate(self._pieces()):
            if index < done:
                continue
            goes_on = writer is not None and index == done
            yield (
                piece,
                GenerateRequest(
                    request_id=f"{self._attempt.request_id}/{index}",
                    task=spec.type,
                    text=piece.text,
                    audio=self._heard(piece),
                    # One language for all: in a short piece it may be mistaken for another.
                    language=spec.language or self.account.language,
                    target_language=spec.target_language,
                    instructions=spec.instructions,
                    voice=spec.voice,
                    word_timestamps=spec.word_timestamps,
                    seed=spec.seed,
                    sampling=spec.sampling_params_list[0] if spec.sampling_params_list else {},
                    prior_tokens=writer.prior_tokens if writer and goes_on else (),
                    prior_output_ids=writer.prior_output_ids if writer and goes_on else (),
                    background=self._attempt.background,
                ),
            )

    def _heard(self, piece: Piece) -> Float32Wave | None:
        recording = self._recording
        if recording is None:
            return None
        if self._hears_all:
            return recording.whole()
        return recording.read(piece.start, piece.stop)
