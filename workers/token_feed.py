"""A job's tokens as Token2Wav takes them: followed while they are made, or whole when nobody listens."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stage_pipeline.chunking import ChunkPolicy
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.messages import ThinkerResult, TokenChunk
from workers.attempt import Attempt
from workers.backend import Backend


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to voice at once; ``final`` are the last of their utterance. A piece is one utterance, which
    belongs ``at_ms`` if that is given, and is followed by a pause unless it is the last."""

    tokens: tuple[int, ...]
    final: bool
    at_ms: int | None
    pause_after_ms: int | None


class TokenFeed:
    """One attempt's. ``result`` is there when all has been fed, or ``finish`` was called. Raises
    ``StreamRestarted`` when the Thinker began anew."""

    def __init__(self, backend: Backend, attempt: Attempt, policy: ChunkPolicy) -> None:
        """Waits for the first tokens."""
        self._policy = policy
        self._streamed = attempt.job.streamed
        chunks = _followed(backend, attempt) if self._streamed else _all(backend, attempt)
        first = next(chunks)
        self.begun_by = first.attempt
        """The Thinker's attempt that began these tokens."""
        self.ended_by = first.attempt
        """And the one that handed the last ones on."""
        self.result = ThinkerResult()
        self._chunks = self._noted(itertools.chain([first], chunks))

    def skip(self, pieces: int) -> None:
        """Leave out so many pieces, before any is fed; those without tokens do not count."""
        made = False
        while pieces:
            chunk = next(self._chunks)
            made = made or bool(chunk.tokens)
            if made and _ends(chunk):
                pieces, made = pieces - 1, False

    def finish(self) -> None:
        """Take what is left without feeding it."""
        for _ in self._chunks:
            pass

    def __iter__(self) -> Iterator[Feed]:
        """A piece without tokens is left out."""
        history: list[int] = []
        consumed = 0
        for chunk in self._chunks:
            history.extend(chunk.tokens)
            ends = _ends(chunk)
            if not self._streamed:
                if history and ends:
                    yield _feed(history, chunk, final=True)
                    history = []
                continue
            while history and (window := self._policy.next_window(history, consumed, ends)):
                consumed = window.consumed
                yield _feed(history[window.start : window.stop], chunk, final=window.final)
                if window.final:
                    history, consumed = [], 0

    def _noted(self, chunks: Iterable[TokenChunk]) -> Iterator[TokenChunk]:
        for chunk in chunks:
            self.ended_by = chunk.attempt
            self.result = chunk.result or self.result
            yield chunk


def _followed(backend: Backend, attempt: Attempt) -> Iterator[TokenChunk]:
    for chunk in backend.tokens.follow(attempt.job.id):
        attempt.check()
        if chunk is not None:
            yield chunk


def _all(backend: Backend, attempt: Attempt) -> Iterator[TokenChunk]:
    chunks = backend.tokens.chunks(attempt.job.id)
    if not chunks or not chunks[-1].final:
        raise StagewaveError(ErrorCode.INTERNAL, "the audio tokens of this job are incomplete")
    yield from chunks


def _ends(chunk: TokenChunk) -> bool:
    return chunk.final or chunk.piece_end is not None


def _feed(tokens: list[int], chunk: TokenChunk, *, final: bool) -> Feed:
    pause_ms = chunk.piece_end.pause_after_ms if chunk.piece_end else None
    return Feed(tuple(tokens), final, chunk.at_ms, pause_ms)
