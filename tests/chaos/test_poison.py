"""A job that kills its worker each time is given up, and takes no healthy job down with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.chaos.rig import Rig
from workers import keys
from workers.states import Status


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("chaos"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_a_poison_job_fails_and_the_healthy_ones_beside_it_finish(rig: Rig) -> None:
    client = rig.client()
    poison = client.submit("tts", text="tokens=5000 delay_ms=10").id
    healthy = [client.submit("tts", text="tokens=100 delay_ms=20").id for _ in range(12)]
    stop = threading.Event()

    def poisoning() -> None:
        killed = 0
        while not stop.wait(0.05):
            state, attempt = rig.backend.client.hmget(keys.job(poison), "state:thinker", "attempt:thinker")
            if state == b"running" and int(attempt or 0) > killed:
                killed = int(attempt or 0)
                rig.kill("thinker")

    killer = threading.Thread(target=poisoning)
    killer.start()
    try:
        failed = rig.ended(poison)
        ended = [rig.ended(job_id) for job_id in healthy]
    finally:
        stop.set()
        killer.join()
    assert failed.status is Status.FAILED
    assert failed.error and failed.error["code"] == "worker_lost"
    assert failed.attempts == {"thinker": rig.settings.max_attempts}
    assert [job.status for job in ended] == [Status.SUCCEEDED] * len(healthy)
