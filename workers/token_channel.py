"""Token chunks on their way from the Thinker to Token2Wav; kept until the job ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import redis

from stage_pipeline.messages import PieceEnd, ThinkerResult, TokenChunk
from workers import keys
from workers.fenced_stream import FencedStream


class StreamRestarted(Exception):
    """The Thinker began anew: what was voiced so far is void."""


class TokenWriter:
    """One Thinker attempt's place at the channel, and what earlier attempts handed on: ``prior_pieces`` are
    whole; of the piece under way there are ``prior_tokens``, and ``prior_output_ids`` that spell them."""

    def __init__(
        self, stream: FencedStream, job_id: str, attempt: int, prior: Sequence[TokenChunk], last_seq: int
    ) -> None:
        self._stream = stream
        self._keys = keys.tokens(job_id), keys.tokens_head(job_id)
        self._attempt = attempt
        self._seq = last_seq + 1
        ends = [index for index, chunk in enumerate(prior) if chunk.piece_end is not None]
        under_way = prior[ends[-1] + 1 :] if ends else prior
        self.prior_pieces = tuple(chunk.piece_end for chunk in prior if chunk.piece_end is not None)
        self.prior_tokens = tuple(token for chunk in under_way for token in chunk.tokens)
        self.prior_output_ids = tuple(id_ for chunk in under_way for id_ in chunk.output_ids)
        self.finished = bool(prior) and prior[-1].final
        self.began = any(chunk.tokens for chunk in prior)
        """Whether there is any token, from whatever attempt."""

    def send(
        self,
        tokens: Sequence[int],
        output_ids: Sequence[int] = (),
        *,
        at_ms: int | None = None,
        piece_end: PieceEnd | None = None,
        result: ThinkerResult | None = None,
    ) -> None:
        """Raises ``FencedOff``. With ``result`` this is the final chunk."""
        ids = tuple(output_ids)
        chunk = TokenChunk(self._seq, self._attempt, tuple(tokens), ids, at_ms, piece_end, result)
        self._stream.append(*self._keys, self._attempt, self._seq, chunk.to_bytes())
        self._seq += 1
        self.began = self.began or bool(tokens)


class TokenChannel:
    """The channel of every job."""

    def __init__(self, client: redis.Redis, blocking: redis.Redis, ttl_s: float) -> None:
        self._stream = FencedStream(client, blocking, ttl_s=ttl_s)

    def open(self, job_id: str, attempt: int, *, afresh: bool = False) -> TokenWriter:
        """Fence earlier attempts off, then read what they left. Raises ``FencedOff``."""
        last = self._stream.open(keys.tokens(job_id), keys.tokens_head(job_id), attempt, afresh=afresh)
        prior = self.chunks(job_id) if last >= 0 else []
        return TokenWriter(self._stream, job_id, attempt, prior, last)

    def chunks(self, job_id: str) -> list[TokenChunk]:
        """What is in the channel now."""
        return [TokenChunk.from_bytes(data) for _, data in self._stream.read(keys.tokens(job_id))]

    def follow(self, job_id: str, beat_s: float = 1.0) -> Iterator[TokenChunk | None]:
        """Every chunk from the first on, as it comes, to the final one; None when nothing came for
        ``beat_s``. Raises ``StreamRestarted`` when the Thinker began anew."""
        expected = 0
        for data in self._stream.follow(keys.tokens(job_id), beat_s):
            if data is None:
                yield None
                continue
            chunk = TokenChunk.from_bytes(data)
            if chunk.seq != expected:
                raise StreamRestarted
            expected += 1
            yield chunk
            if chunk.final:
                return
