"""Tokens and audio between stages: fenced, without gaps or doubles, bounded, and resumable."""

from __future__ import annotations

import threading

import pytest
import redis

from stage_pipeline.messages import AudioChunk, PieceEnd, ThinkerResult
from workers import keys
from workers.audio_channel import AudioChannel, AudioDropped, AudioRestarted
from workers.fenced_stream import FencedOff, FencedStream
from workers.job import new_job_id
from workers.token_channel import StreamRestarted, TokenChannel


@pytest.fixture
def tokens(redis_client: redis.Redis, blocking: redis.Redis) -> TokenChannel:
    return TokenChannel(redis_client, blocking, ttl_s=60)


@pytest.fixture
def audio(redis_client: redis.Redis, blocking: redis.Redis) -> AudioChannel:
    return AudioChannel(redis_client, blocking, ttl_s=60, keep_bytes=0)


def pcm_of(chunks: list[AudioChunk | None]) -> bytes:
    return b"".join(chunk.pcm for chunk in chunks if chunk)


def test_tokens_arrive_in_order_and_end_with_the_result(tokens: TokenChannel) -> None:
    job_id = new_job_id()
    got: list[object] = []
    reader = threading.Thread(
        target=lambda: got.extend((c.tokens, c.result) for c in tokens.follow(job_id) if c)
    )
    reader.start()
    writer = tokens.open(job_id, 1)
    writer.send([1, 2])
    writer.send([3])
    writer.send([], result=ThinkerResult(text="done"))
    reader.join(timeout=5)
    assert got == [((1, 2), None), ((3,), None), ((), ThinkerResult(text="done"))]


def test_the_next_attempt_finds_the_tokens_of_the_one_before(tokens: TokenChannel) -> None:
    job_id = new_job_id()
    tokens.open(job_id, 1).send([1, 2, 3])
    second = tokens.open(job_id, 2)
    assert second.prior_tokens == (1, 2, 3)
    assert not second.finished
    second.send([4], result=ThinkerResult())
    assert [c.tokens for c in tokens.chunks(job_id)] == [(1, 2, 3), (4,)]
    assert tokens.open(job_id, 3).finished


def test_the_next_attempt_finds_whole_pieces_and_the_one_under_way(tokens: TokenChannel) -> None:
    job_id = new_job_id()
    first = tokens.open(job_id, 1)
    end = PieceEnd(300, ThinkerResult(text="One."))
    first.send([1, 2], [91, 1, 2])
    first.send([3], [3, 92], piece_end=end)
    assert tokens.open(job_id, 2).prior_tokens == ()
    tokens.open(job_id, 3).send([4], [93, 4])
    third = tokens.open(job_id, 4)
    assert third.prior_pieces == (end,)
    assert (third.prior_tokens, third.prior_output_ids) == ((4,), (93, 4))


def test_a_stale_writer_is_fenced_off(tokens: TokenChannel) -> None:
    job_id = new_job_id()
    stale = tokens.open(job_id, 1)
    tokens.open(job_id, 2).send([5])
    with pytest.raises(FencedOff):
        stale.send([6])
    with pytest.raises(FencedOff):
        tokens.open(job_id, 1)
    assert [c.tokens for c in tokens.chunks(job_id)] == [(5,)]


def test_a_writer_of_a_dropped_stream_is_fenced_off(
    tokens: TokenChannel, redis_client: redis.Redis
) -> None:
    job_id = new_job_id()
    writer = tokens.open(job_id, 1)
    redis_client.delete(keys.tokens(job_id), keys.tokens_head(job_id))
    with pytest.raises(FencedOff):
        writer.send([1])
    assert not redis_client.exists(keys.tokens(job_id))


def test_an_append_tried_again_adds_nothing(redis_client: redis.Redis, blocking: redis.Redis) -> None:
    stream = FencedStream(redis_client, blocking, ttl_s=60)
    stream.open("{x}:s", "{x}:h", 1)
    for _ in range(3):
        stream.append("{x}:s", "{x}:h", 1, 0, b"once")
    assert [entry for _, entry in stream.read("{x}:s")] == [b"once"]
    with pytest.raises(ValueError, match="does not follow"):
        stream.append("{x}:s", "{x}:h", 1, 2, b"gap")


def test_a_reader_learns_that_the_thinker_began_anew(tokens: TokenChannel) -> None:
    job_id = new_job_id()
    first = tokens.open(job_id, 1)
    first.send([1])
    first.send([2])
    reader = tokens.follow(job_id)
    assert [next(reader), next(reader)]
    tokens.open(job_id, 2, afresh=True).send([9])
    with pytest.raises(StreamRestarted):
        next(reader)


def test_streams_have_a_ttl_from_their_first_entry(tokens: TokenChannel, redis_client: redis.Redis) -> None:
    job_id = new_job_id()
    tokens.open(job_id, 1).send([1])
    assert 0 < redis_client.ttl(keys.tokens(job_id)) <= 60
    assert 0 < redis_client.ttl(keys.tokens_head(job_id)) <= 60


def test_a_second_token2wav_attempt_sends_only_what_is_new(audio: AudioChannel) -> None:
    job_id, whole = new_job_id(), bytes(range(200))
    first = audio.open(job_id, 1, 24_000)
    first.write(whole[:60])
    first.write(whole[60:100])
    second = audio.open(job_id, 2, 24_000)
    for start in range(0, 200, 30):
        second.write(whole[start : start + 30])
    second.close()
    chunks = list(audio.follow(job_id))
    assert pcm_of(chunks) == whole
    with pytest.raises(FencedOff):
        first.write(b"\0\0")


def test_live_audio_is_bounded_and_a_late_listener_is_told(
    redis_client: redis.Redis, blocking: redis.Redis
) -> None:
    audio = AudioChannel(redis_client, blocking, ttl_s=60, keep_bytes=10_000)
    job_id = new_job_id()
    early = audio.follow(job_id)
    writer = audio.open(job_id, 1, 24_000)
    writer.write(bytes(1000))
    assert next(early)
    for _ in range(100):
        writer.write(bytes(1000))
    writer.close()
    assert redis_client.xlen(keys.audio(job_id)) <= 11
    with pytest.raises(AudioDropped):
        list(audio.follow(job_id))
    with pytest.raises(AudioDropped):
        list(early)


def test_a_listener_to_an_utterance_that_is_made_anew_is_told(audio: AudioChannel) -> None:
    job_id = new_job_id()
    listener = audio.follow(job_id)
    audio.open(job_id, 1, 24_000).write(bytes(1000))
    assert next(listener)
    audio.open(job_id, 2, 24_000, afresh=True).write(bytes(1000))
    with pytest.raises(AudioRestarted):
        list(listener)


def test_a_silent_channel_gives_beats(audio: AudioChannel) -> None:
    listener = audio.follow(new_job_id(), beat_s=0.05)
    assert [next(listener), next(listener)] == [None, None]
