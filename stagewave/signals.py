"""Ctrl-C, SIGTERM and a closed terminal ask a supervisor to stop; none of them cuts it off."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_stop_signal(ask: Callable[[], None]) -> Iterator[None]:
    """While in here each of the signals calls ``ask``, in the main thread, between any two steps of it."""

    def handle(number: int, frame: FrameType | None) -> None:
        ask()

    before = {number: signal.signal(number, handle) for number in _ASKING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
