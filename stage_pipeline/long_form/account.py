"""What an attempt has made of a job so far, put together from what its pieces came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stage_pipeline.long_form.piece import Piece
from stage_pipeline.long_form.scripts import joint
from stage_pipeline.messages import ThinkerResult
from stage_pipeline.stages import THINKER_RATE_HZ, Segment, Task, ThinkerDelta, Usage


@dataclass(frozen=True, slots=True)
class PieceResult:
    """What a piece came to; times are those of the whole recording."""

    result: ThinkerResult
    segments: tuple[Segment, ...]


@dataclass(slots=True)
class _UnderWay:
    piece: Piece
    total: int
    text: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    language: str | None = None
    finish_reason: str = "stop"
    usage: Usage = Usage()


class Account:
    """Takes a Thinker's deltas piece by piece, and gives them back as part of the whole job: texts joined,
    times and progress moved to the piece's place."""

    def __init__(self, task: Task, prior: Sequence[PieceResult] = ()) -> None:
        """``prior``: pieces that earlier attempts have made whole."""
        self._task = task
        self._done = list(prior)
        self._now = _UnderWay(Piece(0, 0), 1)
        self._text = "".join(piece.result.text for piece in prior)
        self._source = "".join(piece.result.source_text for piece in prior)
        self._end_s = max((segment.end_s for piece in prior for segment in piece.segments), default=0.0)

    @property
    def told(self) -> tuple[str, str]:
        """The text and the source text of the pieces that have ended, as they were told."""
        return self._text, self._source

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Of the pieces that have ended."""
        return tuple(segment for piece in self._done for segment in piece.segments)

    @property
    def language(self) -> str | None:
        """What the first piece that knew its language said."""
        known = [piece.result.language for piece in self._done] + [self._now.language]
        return next((language for language in known if language), None)

    def begin(self, piece: Piece, total: int) -> None:
        """The deltas that come now are of this piece; ``total`` is the length of all, counted as its place
        is."""
        self._now = _UnderWay(piece, total)

    def add(self, delta: ThinkerDelta) -> ThinkerDelta:
        """The delta as it is told of the whole job."""
        now = self._now
        told = replace(
            delta,
            text=delta.text if now.text else joint(self._text, delta.text) + delta.text,
            source_text=delta.source_text
            if now.source
            else joint(self._source, delta.source_text) + delta.source_text,
            segments=tuple(self._placed(segment) for segment in delta.segments),
            progress=None if delta.progress is None else self._share(delta.progress),
        )
        if told.text:
            now.text.append(told.text)
        if told.source_text:
            now.source.append(told.source_text)
        now.segments.extend(told.segments)
        now.language = delta.language or now.language
        now.finish_reason = delta.finish_reason or now.finish_reason
        now.usage = delta.usage or now.usage
        return told

    def end(self) -> tuple[PieceResult, ThinkerDelta]:
        """The piece under way is whole: what it came to, and what remains to be told of it.

        Speech whose words came without times is a segment as long as its piece."""
        now = self._now
        text, source = "".join(now.text), "".join(now.source)
        heard = source if self._task is Task.S2ST else text
        rest: tuple[Segment, ...] = ()
        if self._task is not Task.TTS and heard.strip() and not now.segments:
            length_s = (now.piece.stop - now.piece.start) / THINKER_RATE_HZ
            rest = (self._placed(Segment(heard.strip(), 0.0, length_s)),)
        result = ThinkerResult(
            text=text,
            source_text=source,
            language=now.language,
            finish_reason=now.finish_reason,
            prompt_tokens=now.usage.prompt_tokens,
            text_tokens=now.usage.text_tokens,
            audio_tokens=now.usage.audio_tokens,
        )
        ended = PieceResult(result, (*now.segments, *rest))
        self._done.append(ended)
        self._text += text
        self._source += source
        self._now = _UnderWay(Piece(0, 0), 1)
        return ended, ThinkerDelta(segments=rest, progress=self._share_of(now, 1.0))

    def whole(self) -> PieceResult:
        """What all pieces that have ended came to."""
        results = [piece.result for piece in self._done]
        reasons = [result.finish_reason for result in results]
        result = ThinkerResult(
            text=self._text.strip(),
            source_text=self._source.strip(),
            language=self.language,
            finish_reason="length" if "length" in reasons else "stop",
            prompt_tokens=sum(result.prompt_tokens for result in results),
            text_tokens=sum(result.text_tokens for result in results),
            audio_tokens=sum(result.audio_tokens for result in results),
        )
        return PieceResult(result, self.segments)

    def _share(self, of_piece: float) -> float:
        return self._share_of(self._now, of_piece)

    @staticmethod
    def _share_of(at: _UnderWay, of_piece: float) -> float:
        return (at.piece.start + of_piece * (at.piece.stop - at.piece.start)) / max(at.total, 1)

    def _placed(self, segment: Segment) -> Segment:
        """With its times in the whole recording, where they never run backwards; and not in the silence
        before the speech, where it is known when that begins."""
        piece = self._now.piece
        offset_s = piece.start / THINKER_RATE_HZ
        earliest_s = max(self._end_s, (piece.at_ms or 0) / 1000)

        def moved(time_s: float) -> float:
            return max(round(time_s + offset_s, 3), earliest_s)

        words = tuple(
            replace(word, start_s=moved(word.start_s), end_s=moved(word.end_s)) for word in segment.words
        )
        placed = Segment(segment.text, moved(segment.start_s), moved(segment.end_s), words)
        self._end_s = placed.end_s
        return placed
