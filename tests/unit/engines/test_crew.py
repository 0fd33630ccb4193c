"""The threads that compute for all streams."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from stage_pipeline.engines.embedded.crew import Crew


def test_no_more_at_once_than_it_has_threads_and_urgent_work_first() -> None:
    crew = Crew(1)
    order: list[str] = []
    let_go = threading.Event()
    threads = [threading.Thread(target=crew.run, args=(let_go.wait,), kwargs={"urgent": False})]
    threads[0].start()
    for name, urgent in (("first", False), ("second", False), ("urgent", True)):
        time.sleep(0.05)
        work = (lambda name=name: order.append(name),)
        threads.append(threading.Thread(target=crew.run, args=work, kwargs={"urgent": urgent}))
        threads[-1].start()
    time.sleep(0.05)
    assert order == []

    let_go.set()
    for thread in threads:
        thread.join(5)

    assert order == ["urgent", "first", "second"]


def test_results_and_failures_go_to_the_one_who_asked() -> None:
    crew = Crew(2)

    assert crew.run(lambda: 7, urgent=False) == 7
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            crew.run(lambda: 1 // 0, urgent=True)
    assert crew.run(lambda: 8, urgent=False) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="only there a thread has a priority of its own")
def test_what_nobody_waits_for_is_computed_with_a_low_priority() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    assert Crew(1, background=True).run(priority, urgent=True) == 10
    assert Crew(1).run(priority, urgent=False) == priority() < 10
