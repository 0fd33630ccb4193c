"""A job's tokens as Token2Wav takes them: followed while they are made, or whole when nobody listens."""

from __future__ import annotations

from collections.abc import Iterator
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
    """One attempt's. ``result`` is there when all has been fed."""

    def __init__(self, backend: Backend, attempt: Attempt, policy: ChunkPolicy) -> None:
        self._backend = backend
        self._attempt = attempt
        self._policy = policy
        self.result = ThinkerResult()

    def __iter__(self) -> Iterator[Feed]:
        """Raises ``StreamRestarted`` when the Thinker began anew. A piece without tokens is left out."""
        return self._followed() if self._attempt.job.streamed else self._whole()

    def _followed(self) -> Iterator[Feed]:
        history: list[int] = []
        consumed = 0
        for chunk in self._backend.tokens.follow(self._attempt.job.id):
            self._attempt.check()
            if chunk is None:
                continue
            history.extend(chunk.tokens)
            self.result = chunk.result or self.result
            ends = _ends(chunk)
            while history and (window := self._policy.next_window(history, consumed, ends)):
                consumed = window.consumed
                yield _feed(history[window.start : window.stop], chunk, final=window.final)
                if window.final:
                    history, consumed = [], 0

    def _whole(self) -> Iterator[Feed]:
        chunks = self._backend.tokens.chunks(self._attempt.job.id)
        if not chunks or chunks[-1].result is None:
            raise StagewaveError(ErrorCode.INTERNAL, "the audio tokens of this job are incomplete")
        self.result = chunks[-1].result
        history: list[int] = []
        for chunk in chunks:
            history.extend(chunk.tokens)
            if history and _ends(chunk):
                yield _feed(history, chunk, final=True)
                history = []


def _ends(chunk: TokenChunk) -> bool:
    return chunk.final or chunk.piece_end is not None


def _feed(tokens: list[int], chunk: TokenChunk, *, final: bool) -> Feed:
    pause_ms = chunk.piece_end.pause_after_ms if chunk.piece_end else None
    return Feed(tuple(tokens), final, chunk.at_ms, pause_ms)
