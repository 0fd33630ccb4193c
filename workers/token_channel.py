"""Token chunks on their way from the Thinker to Token2Wav; kept until the job ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import redis

from stage_pipeline.messages import ThinkerResult, TokenChunk
from workers import keys
from workers.fenced_stream import FencedStream


class StreamRestarted(Exception):
    """The Thinker began anew: what was voiced so far is void."""


class TokenWriter:
    """One Thinker attempt's place at the channel. ``prior`` is what earlier attempts handed on."""

    def __init__(
        self, stream: FencedStream, job_id: str, attempt: int, prior: Sequence[TokenChunk], last_seq: int
    ) -> None:
        self._stream = stream
        self._keys = keys.tokens(job_id), keys.tokens_head(job_id)
        self._attempt = attempt
        self._seq = last_seq + 1
        self.prior_tokens = tuple(token for chunk in prior for token in chunk.tokens)
        self.finished = bool(prior) and prior[-1].final

    def send(self, tokens: Sequence[int], result: ThinkerResult | None = None) -> None:
        """Raises ``FencedOff``. With ``result`` this is the final chunk."""
        chunk = TokenChunk(self._seq, self._attempt, tuple(tokens), result)
        self._stream.append(*self._keys, self._attempt, self._seq, chunk.to_bytes())
        self._seq += 1


class TokenChannel:
    """The channel of every job."""

    def __init__(self, client: redis.Redis, blocking: redis.Redis, ttl_s: float) -> None:
        self._stream = FencedStream(client, blocking, ttl_s=ttl_s)

    def open(self, job_id: str, attempt: int, *, afresh: bool = False) -> TokenWriter:
        """Fence earlier attempts off, then read what they left. Raises ``FencedOff``."""
        last = self._stream.open(keys.tokens(job_id), keys.tokens_head(job_id), attempt, afresh=afresh)
        return TokenWriter(self._stream, job_id, attempt, self.chunks(job_id), last)

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
