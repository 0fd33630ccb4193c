"""The threads that compute for all streams: one a core, first sounds before the rest."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from stage_pipeline.engines.embedded.background import give_way

Result = TypeVar("Result")

_Job = tuple[bool, int, Callable[[], None]]


class Crew:
    """Runs what many threads ask for on a few of its own.

    Fewer threads than streams, since more than there are cores only slow each other; and always the same
    ones, since the C library keeps freed memory apart for each thread that ever asked for some.
    """

    def __init__(self, size: int, *, background: bool = False) -> None:
        """``background``: they give way to other threads."""
        self._background = background
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._count = itertools.count()
        for index in range(size):
            threading.Thread(target=self._work, name=f"crew-{index}", daemon=True).start()

    def run(self, work: Callable[[], Result], *, urgent: bool) -> Result:
        """Wait for the result of ``work``, or for what it raises.

        Urgent work goes before other work that waits; otherwise first come, first served.
        """
        future: Future[Result] = Future()
        self._jobs.put((not urgent, next(self._count), lambda: _settle(future, work)))
        return future.result()

    def _work(self) -> None:
        if self._background:
            give_way()
        while True:
            *_, job = self._jobs.get()
            job()
            # Or the last job's arrays would live until the next one comes.
            del job


def _settle(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # the one who asked handles it; this thread must go on
        future.set_exception(error)
