"""Token2Wav as the queue's workers use it."""

import random
import threading
import time

import numpy as np
import pytest

from stage_pipeline.deploy import DeployError
from stage_pipeline.errors import ErrorCode, StagewaveError


def tokens_of(count, seed=0):
    return tuple(np.random.RandomState(seed).randint(0, 6561, count).tolist())


def all_of(pieces):
    return np.concatenate([np.zeros(0, np.float32), *pieces])


@pytest.mark.parametrize("count", [1, 2, 7, 28, 60])
def test_a_single_final_feed_is_voiced_as_a_whole_960_samples_a_token(engine, count):
    stream = engine().open("default", 1)
    (wave,) = stream.feed(tokens_of(count), True)
    assert wave.dtype == np.float32
    assert wave.shape == (960 * count,)
    assert 0 < np.abs(wave).max() <= 1


@pytest.mark.parametrize("count", [28, 29, 50, 52, 53, 78])
def test_windows_add_up_to_960_samples_a_token(engine, count):
    shared = engine()
    stream = shared.open("default", 1)
    tokens, consumed, lengths, final = tokens_of(count), 0, [], False
    while not final:
        window = shared.chunk_policy.next_window(tokens, consumed, True)
        lengths.append(sum(map(len, stream.feed(tokens[window.start : window.stop], window.final))))
        consumed, final = window.consumed, window.final
    assert lengths[0] == 20_160  # 50 frames, without what fades into the next
    assert sum(lengths) == 960 * count


def test_audio_end_and_padding_ids_never_reach_the_flow(engine):
    shared = engine()
    clean = all_of(shared.open("default", 3).feed(tokens_of(30), True))
    dirty = (6561, *tokens_of(30)[:10], 6562, -1, *tokens_of(30)[10:], 6561)
    assert np.array_equal(all_of(shared.open("default", 3).feed(dirty, True)), clean)


def test_no_tokens_at_all_are_no_sound(engine):
    stream = engine().open("default", 1)
    assert list(stream.feed((), True)) == []


def test_an_empty_last_window_gives_the_tail_that_was_held_back(engine):
    shared = engine()
    stream = shared.open("default", 1)
    lengths = [len(all_of(stream.feed(tokens_of(28), False))), len(all_of(stream.feed((), True)))]
    assert lengths == [20_160, 3_840]


def test_what_is_too_long_for_one_pass_is_voiced_window_by_window(engine, monkeypatch):
    monkeypatch.setattr("stage_pipeline.engines.step_audio2.token2wav.engine.LONGEST_TOKENS", 76 + 100)
    shared = engine()
    assert len(list(shared.open("default", 1).feed(tokens_of(100), True))) == 1
    count = 101
    stream = shared.open("default", 1)
    pieces = list(stream.feed(tokens_of(count), True))
    assert len(pieces) == 4
    assert sum(map(len, pieces)) == 960 * count


def test_a_stream_refuses_what_no_policy_cuts(engine):
    shared = engine()
    for tokens in ((), tokens_of(10), tokens_of(30)):
        with pytest.raises(StagewaveError) as caught:
            list(shared.open("default", 1).feed(tokens, False))
        assert caught.value.code is ErrorCode.ENGINE_FAILED
    stream = shared.open("default", 1)
    list(stream.feed(tokens_of(5), True))
    with pytest.raises(StagewaveError):
        list(stream.feed(tokens_of(5), True))


def test_an_unknown_voice_is_refused(engine):
    shared = engine()
    assert shared.voices() == ("default",)
    with pytest.raises(StagewaveError) as caught:
        shared.open("../../etc/passwd", 1)
    assert caught.value.code is ErrorCode.VOICE_UNKNOWN


def test_a_configured_voice_that_is_missing_stops_the_start_and_names_itself(engine, tmp_path):
    with pytest.raises(DeployError, match="voices.anna: "):
        engine({"anna": str(tmp_path / "none.wav"), "default": str(tmp_path / "none.wav")})


def test_a_closed_stream_frees_its_slot_for_one_that_waits(engine):
    shared = engine(streams=1)
    holder, waiter = shared.open("default", 1), shared.open("default", 2)
    list(holder.feed(tokens_of(28), False))
    got = []
    thread = threading.Thread(target=lambda: got.extend(waiter.feed(tokens_of(28), False)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    holder.close()
    holder.close()
    thread.join(20)
    assert sum(map(len, got)) == 20_160


def test_closing_a_stream_that_waits_ends_its_feed(engine):
    shared = engine(streams=1)
    holder, waiter = shared.open("default", 1), shared.open("default", 2)
    list(holder.feed(tokens_of(28), False))
    got = []
    thread = threading.Thread(target=lambda: got.append(list(waiter.feed(tokens_of(28), False))))
    thread.start()
    time.sleep(0.1)
    waiter.close()
    thread.join(5)
    assert got == [[]]
    # The holder goes on undisturbed.
    assert sum(map(len, holder.feed(tokens_of(3), True))) == 960 * 28 - 20_160


def test_streams_given_up_at_any_moment_leave_no_slot_taken(engine):
    shared = engine(streams=2)

    def run(seed):
        draw = random.Random(seed)
        stream = shared.open("default", seed)
        closer = threading.Timer(draw.uniform(0, 0.3), stream.close)
        closer.start()
        try:
            for _ in range(3):
                list(stream.feed(tokens_of(28), False))
        except StagewaveError:
            pass  # closed between two windows
        closer.join()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    for seed in (1, 2):  # both slots are there, and clean
        assert sum(map(len, shared.open("default", seed).feed(tokens_of(28), False))) == 20_160


def test_a_closed_engine_refuses_instead_of_hanging(engine):
    shared = engine()
    stream = shared.open("default", 1)
    shared.close()
    with pytest.raises(StagewaveError) as caught:
        list(stream.feed(tokens_of(28), False))
    assert caught.value.code is ErrorCode.ENGINE_FAILED


def test_a_failing_batch_fails_its_jobs_and_no_others(engine, monkeypatch):
    shared = engine()
    stream = shared.open("default", 1)
    monkeypatch.setattr(shared._windows._streams, "step", lambda windows: 1 / 0)
    with pytest.raises(StagewaveError) as caught:
        list(stream.feed(tokens_of(28), False))
    assert caught.value.code is ErrorCode.ENGINE_FAILED
    monkeypatch.undo()
    assert sum(map(len, shared.open("default", 1).feed(tokens_of(28), False))) == 20_160
    with pytest.raises(StagewaveError):  # its caches are gone: it must not go on from the start
        list(stream.feed(tokens_of(28), False))


def test_warming_up_changes_nothing(engine):
    shared = engine()
    before = all_of(shared.open("default", 4).feed(tokens_of(28), False))
    warm = engine()
    warm.warm_up()
    assert np.array_equal(all_of(warm.open("default", 4).feed(tokens_of(28), False)), before)
