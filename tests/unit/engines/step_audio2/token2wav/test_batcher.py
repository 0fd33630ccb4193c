"""Who is voiced when, and with whom."""

import threading
import time

import numpy as np
import pytest
import torch

from stage_pipeline.engines.step_audio2.token2wav.batcher import Batcher, Request
from stage_pipeline.engines.step_audio2.token2wav.lane import Lane
from stage_pipeline.engines.step_audio2.token2wav.whole_decoder import Utterance
from stage_pipeline.engines.step_audio2.token2wav.whole_work import WholeWork
from stage_pipeline.engines.step_audio2.token2wav.window_work import Ask, Job, WindowWork
from stage_pipeline.engines.step_audio2.urgency import Urgency
from stage_pipeline.errors import StagewaveError


class Recording:
    """Takes up to ``size`` at a time, and notes them; holds until it is let go."""

    def __init__(self, size, expected=None):
        self.size = size
        self.expected = expected
        self.batches = []
        self.began, self.gate = threading.Event(), threading.Event()

    def choose(self, waiting):
        return list(waiting[: self.size])

    def full(self, waiting):
        return len(waiting) >= min(self.size, self.expected or self.size)

    def decode(self, chosen):
        self.batches.append([request.work for request in chosen])
        self.began.set()
        self.gate.wait(5)
        if "bad" in self.batches[-1]:
            raise ValueError("of the decoder")
        return [np.full(1, request.work, np.float32) for request in chosen]


def asking(batcher, work, results):
    def run():
        try:
            results[work] = batcher.voice(Request(work))
        except StagewaveError as error:
            results[work] = error

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def started(batcher, decoder, works):
    """Threads that ask one after the other while the decoder is held."""
    results, threads = {}, []
    for work in works:
        threads.append(asking(batcher, work, results))
        while len(batcher._waiting) + sum(map(len, decoder.batches)) < len(threads):
            time.sleep(0.001)
    return results, threads


def test_what_came_during_a_pass_goes_together_oldest_first_and_none_is_left_out():
    decoder = Recording(size=3)
    batcher = Batcher(decoder, wait_s=0.0)
    results, threads = started(batcher, decoder, [0])
    assert decoder.began.wait(5)
    for work in range(1, 8):
        threads.append(asking(batcher, work, results))
        while len(batcher._waiting) < work:
            time.sleep(0.001)
    decoder.gate.set()
    for thread in threads:
        thread.join(5)
    assert decoder.batches == [[0], [1, 2, 3], [4, 5, 6], [7]]
    assert {work: float(wave[0]) for work, wave in results.items()} == {n: float(n) for n in range(8)}
    batcher.close()


def test_the_first_waits_for_others_only_as_long_as_the_bound():
    decoder = Recording(size=8)
    decoder.gate.set()
    batcher = Batcher(decoder, wait_s=0.15)
    results, threads = started(batcher, decoder, range(3))
    for thread in threads:
        thread.join(5)
    assert decoder.batches == [[0, 1, 2]]
    batcher.close()


def test_those_just_served_come_back_to_one_crowd_with_those_who_waited_meanwhile():
    decoder = Recording(size=8)
    batcher = Batcher(decoder, wait_s=0.3)
    results, threads = started(batcher, decoder, [0])
    assert decoder.began.wait(5)
    threads.append(asking(batcher, 1, results))
    time.sleep(0.4)  # longer than it would wait for others if nothing ran
    decoder.gate.set()
    threads[0].join(5)
    threads.append(asking(batcher, 2, results))
    for thread in threads:
        thread.join(5)
    assert decoder.batches == [[0], [1, 2]]
    batcher.close()


def test_nobody_waits_when_everybody_who_could_ask_has_asked():
    decoder = Recording(size=8, expected=2)
    decoder.gate.set()
    batcher = Batcher(decoder, wait_s=60)
    results, threads = started(batcher, decoder, range(2))
    for thread in threads:
        thread.join(5)
    assert decoder.batches == [[0, 1]]
    batcher.close()


def test_a_failure_is_typed_and_the_thread_goes_on():
    decoder = Recording(size=1)
    decoder.gate.set()
    batcher = Batcher(decoder, wait_s=0)
    results, threads = started(batcher, decoder, ["bad"])
    threads[0].join(5)
    assert isinstance(results["bad"], StagewaveError)
    assert batcher.voice(Request(5))[0] == 5
    batcher.close()


def test_closing_ends_those_that_wait():
    decoder = Recording(size=8)
    batcher = Batcher(decoder, wait_s=60)
    results, threads = started(batcher, decoder, [1])
    batcher.close()
    threads[0].join(5)
    assert isinstance(results[1], StagewaveError)


class Slots:
    free = 1


class Streams:
    slots = Slots()


@pytest.fixture
def windows():
    return WindowWork(None, Streams(), Lane(torch.device("cpu"), ahead=True), most_streams=2, most_caches=2)


@pytest.fixture
def wholes():
    return WholeWork(None, Lane(torch.device("cpu"), ahead=False), Urgency(), most_frames=1000)


def asks(voice, *counts):
    return [Request(Ask(Job(voice, 0), (0,) * count, False)) for count in counts]


def utterances(voice, *counts):
    return [Request(Utterance(voice, 0, (0,) * count)) for count in counts]


def test_whole_utterances_of_like_length_go_together_with_the_oldest(wholes, voice):
    waiting = utterances(voice, 100, 400, 110)
    assert wholes.choose(waiting) == [waiting[0], waiting[2]]
    assert wholes.choose(waiting[1:]) == [waiting[1]]


def test_one_pass_over_whole_utterances_holds_no_more_than_its_frames(wholes, voice):
    waiting = utterances(voice, *[100] * 4)
    assert wholes.choose(waiting) == waiting[:2]  # 152 of the prompt and 200 each
    alone = utterances(voice, 2000)
    assert wholes.choose(alone) == alone  # one is always taken


def test_windows_without_a_slot_wait(windows, voice):
    waiting = asks(voice, 28, 28)
    assert windows.choose(waiting) == waiting[:1]


def test_what_nobody_waits_for_is_voiced_last(wholes, voice):
    waiting = [Request(Utterance(voice, 0, (0,) * 100, back)) for back in (True, False, True)]
    assert wholes.choose(waiting) == [waiting[1], waiting[0]]


def test_a_window_does_not_wait_for_streams_that_have_no_more(windows, voice):
    one, other = Job(voice, 0), Job(voice, 0)
    windows.opened(one)
    windows.opened(other)
    waiting = [Request(Ask(one, (0,) * 28, False))]
    assert not windows.full(waiting)
    windows.closed(other)
    assert windows.full(waiting)
