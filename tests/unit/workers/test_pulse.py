"""When an engine hangs, counted in looks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from workers.pulse import STUCK_TIMES, Pulse

LIMIT = 3


class Engine:
    """Gives a piece for each ``release`` of its gate."""

    def __init__(self, pulse: Pulse, who: str) -> None:
        self._gate = threading.Semaphore(0)
        self._at_work = threading.Semaphore(0)
        threading.Thread(target=lambda: list(pulse.steps(who, self._make())), daemon=True).start()
        assert self._at_work.acquire(timeout=5)

    def give(self) -> None:
        """Returns when it works on the next piece."""
        self._gate.release()
        assert self._at_work.acquire(timeout=5)

    def _make(self) -> Iterator[int]:
        for piece in range(100):
            self._at_work.release()
            self._gate.acquire()
            yield piece


def looks(pulse: Pulse, count: int) -> list[set[object]]:
    return [pulse.look(LIMIT) for _ in range(count)]


def test_an_engine_without_work_does_not_hang() -> None:
    assert looks(Pulse(), 99) == [set()] * 99


def test_an_engine_that_gives_nothing_for_the_limit_hangs() -> None:
    pulse = Pulse()
    looks(pulse, 99)  # it was idle for long
    Engine(pulse, "a")
    assert looks(pulse, LIMIT + 1) == [*[set()] * LIMIT, {"a"}]


def test_who_came_when_it_hung_already_is_not_to_blame() -> None:
    pulse = Pulse()
    Engine(pulse, "a")
    looks(pulse, LIMIT - 1)
    young = Engine(pulse, "b")
    young.give()  # what it gives proves that the engine lives
    looks(pulse, LIMIT)
    Engine(pulse, "c")
    assert pulse.look(LIMIT) == {"a", "b"}


def test_one_who_waits_is_well_while_others_get_theirs_but_not_for_ever() -> None:
    pulse = Pulse()
    Engine(pulse, "waits")
    busy = Engine(pulse, "busy")
    for _ in range(LIMIT * STUCK_TIMES):
        busy.give()
        assert pulse.look(LIMIT) == set()
    busy.give()
    assert pulse.look(LIMIT) == {"waits"}


def test_a_step_that_fails_is_over() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError

    pulse = Pulse()
    with pytest.raises(ValueError):
        list(pulse.steps("a", broken()))
    assert looks(pulse, 9) == [set()] * 9
