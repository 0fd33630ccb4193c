"""One piece's tokens on their way into the channel."""

from __future__ import annotations

from stage_pipeline.chunking import ChunkPolicy
from stage_pipeline.messages import PieceEnd, ThinkerResult
from stage_pipeline.stages import ThinkerDelta
from workers.token_channel import TokenWriter


class Handover:
    """Sends tokens on as soon as a window is complete, with all that was made by then: so the ids that go
    with them spell exactly what was sent, and an attempt that goes on from there makes the rest again."""

    def __init__(
        self, policy: ChunkPolicy, writer: TokenWriter, prior: tuple[int, ...], at_ms: int | None
    ) -> None:
        """``prior``: the piece's tokens that are in the channel."""
        self._policy = policy
        self._writer = writer
        self._at_ms = at_ms
        self._history = list(prior)
        self._sent = len(prior)
        self._ids: list[int] = []
        self._consumed = 0
        self._completes()

    @property
    def any(self) -> bool:
        """Whether the piece has any token, handed on or not."""
        return bool(self._history)

    def add(self, delta: ThinkerDelta) -> None:
        self._history.extend(token for token in delta.tokens if self._policy.keeps(token))
        self._ids.extend(delta.output_ids)
        if self._completes():
            self._send()

    def end(self, piece_end: PieceEnd) -> None:
        """The piece is whole, and another follows."""
        self._send(piece_end)

    def finish(self, result: ThinkerResult) -> None:
        """The piece is whole, and was the last."""
        self._send(result=result)

    def _send(self, piece_end: PieceEnd | None = None, result: ThinkerResult | None = None) -> None:
        tokens = self._history[self._sent :]
        self._writer.send(tokens, self._ids, at_ms=self._at_ms, piece_end=piece_end, result=result)
        self._sent = len(self._history)
        self._ids = []

    def _completes(self) -> bool:
        """Whether a window has become complete."""
        before = self._consumed
        while (window := self._policy.next_window(self._history, self._consumed, False)) is not None:
            self._consumed = window.consumed
        return self._consumed > before
