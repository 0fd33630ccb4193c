"""Live audio on its way from Token2Wav to listeners: bounded, and never waiting for a slow one.

What no longer fits is dropped from the front; a listener that is so far behind gets the rest from the
object store, where the same samples stand at the same place.
"""

from __future__ import annotations

from collections.abc import Iterator

import redis

from stage_pipeline.messages import AudioChunk
from workers import keys
from workers.fenced_stream import FencedStream


class AudioDropped(Exception):
    """The samples a listener would need next are no longer kept."""


class AudioRestarted(Exception):
    """The utterance is made anew: what a listener has heard is void."""


class AudioWriter:
    """One Token2Wav attempt's place at the channel: it takes the whole utterance's PCM from sample 0,
    and sends only what no earlier attempt has sent."""

    def __init__(
        self, stream: FencedStream, job_id: str, attempt: int, rate_hz: int, last: AudioChunk | None
    ) -> None:
        self._stream = stream
        self._keys = keys.audio(job_id), keys.audio_head(job_id)
        self._attempt = attempt
        self._rate_hz = rate_hz
        self._seq = last.seq + 1 if last else 0
        self._sent = last.end_sample if last else 0
        self._closed = bool(last and last.final)
        self._made = 0

    def write(self, pcm: bytes) -> None:
        """int16 PCM that follows what was written before. Raises ``FencedOff``."""
        first = self._made
        self._made += len(pcm) // 2
        if self._made > self._sent:
            self._append(self._sent, pcm[2 * max(0, self._sent - first) :], final=False)

    def close(self) -> None:
        """The utterance is complete; listeners need not wait for its upload."""
        if not self._closed:
            self._append(self._sent, b"", final=True)
            self._closed = True

    def _append(self, first: int, pcm: bytes, *, final: bool) -> None:
        chunk = AudioChunk(self._seq, self._attempt, first, self._rate_hz, pcm, final)
        self._stream.append(*self._keys, self._attempt, self._seq, chunk.to_bytes())
        self._seq += 1
        self._sent = chunk.end_sample


class AudioChannel:
    """The channel of every job."""

    def __init__(self, client: redis.Redis, blocking: redis.Redis, ttl_s: float, keep_bytes: int) -> None:
        self._stream = FencedStream(client, blocking, ttl_s=ttl_s, keep_bytes=keep_bytes)

    def open(self, job_id: str, attempt: int, rate_hz: int, *, afresh: bool = False) -> AudioWriter:
        """Fence earlier attempts off, then see how far they came. Raises ``FencedOff``."""
        stream = keys.audio(job_id)
        self._stream.open(stream, keys.audio_head(job_id), attempt, afresh=afresh)
        entry = self._stream.last(stream)
        last = AudioChunk.from_bytes(entry) if entry else None
        return AudioWriter(self._stream, job_id, attempt, rate_hz, last)

    def follow(self, job_id: str, beat_s: float = 1.0) -> Iterator[AudioChunk | None]:
        """Every chunk from sample 0 on, as it comes, to the final one; None when nothing came for
        ``beat_s`` (the caller then looks whether the job still runs). Raises ``AudioDropped`` when the
        next samples are no longer kept, ``AudioRestarted`` when the first ones come again."""
        expected = 0
        for data in self._stream.follow(keys.audio(job_id), beat_s):
            if data is None:
                yield None
                continue
            chunk = AudioChunk.from_bytes(data)
            if chunk.first_sample < expected:
                raise AudioRestarted
            if chunk.first_sample > expected:
                raise AudioDropped
            expected = chunk.end_sample
            yield chunk
            if chunk.final:
                return
