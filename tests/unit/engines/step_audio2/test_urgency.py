"""How work that nobody waits for stops, and goes on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stage_pipeline.engines.step_audio2.urgency import LONGEST_S, Urgency


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_background_goes_on_when_nobody_waits():
    urgency = Urgency()
    urgency.begins("a")
    urgency.ends("a")
    began = time.monotonic()
    urgency.give_way()
    assert time.monotonic() - began < LONGEST_S / 2


def test_it_stops_until_the_last_of_them_has_been_served():
    urgency, passed = Urgency(), threading.Event()
    for who in ("a", "a", "b"):
        urgency.begins(who)

    def work() -> None:
        urgency.give_way()
        passed.set()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(work)
        urgency.ends("a")
        assert not passed.wait(LONGEST_S / 5)
        urgency.ends("b")
        assert passed.wait(LONGEST_S / 2)


@pytest.mark.parametrize(("later_s", "stops"), [(0.9 * LONGEST_S, False), (1.2 * LONGEST_S, True)])
def test_it_gets_half_of_the_time_when_somebody_always_waits(later_s, stops):
    clock = Clock()
    urgency = Urgency(clock)
    urgency.begins("a")
    threading.Timer(LONGEST_S / 2, lambda: setattr(clock, "now", clock.now + LONGEST_S)).start()
    assert seconds(urgency) > 0.9 * LONGEST_S
    clock.now += later_s
    assert (seconds(urgency) > 0.9 * LONGEST_S) is stops


def test_it_does_not_stop_for_who_waits_too_long_or_behind_it():
    clock = Clock()
    urgency = Urgency(clock)
    urgency.begins("a")
    with urgency.behind_it():
        assert seconds(urgency) < LONGEST_S / 2
    clock.now += 6.0
    urgency.begins("a")
    assert seconds(urgency) < LONGEST_S / 2
    urgency.begins("b")
    assert seconds(urgency) > 0.9 * LONGEST_S


def seconds(urgency: Urgency) -> float:
    """How long it stops."""
    began = time.monotonic()
    urgency.give_way()
    return time.monotonic() - began
