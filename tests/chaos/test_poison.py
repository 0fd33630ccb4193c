"""A job that kills its worker each time, or hangs its engine, is given up, and takes no other job down."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.chaos.rig import Rig
from workers import keys
from workers.states import Status
from workers.worker import LEFT_EXIT

SILENT_S = 2.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("chaos"), engine_silent_s=SILENT_S, max_attempts=2)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_a_poison_job_fails_and_the_healthy_ones_beside_it_finish(rig: Rig) -> None:
    client = rig.client()
    poison = client.submit("tts", text="tokens=5000 delay_ms=10").id
    healthy = [client.submit("tts", text="tokens=60 delay_ms=20").id for _ in range(6)]
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


def test_a_job_that_hangs_the_engine_fails_and_the_healthy_ones_beside_it_finish(rig: Rig) -> None:
    client = rig.client()
    rig.child("thinker").deaths = 0
    before = len(rig.said)
    healthy = [client.submit("tts", text="tokens=80 delay_ms=20").id for _ in range(3)]
    poison = client.submit("tts", text="tokens=2 delay_ms=20 hang_ms=900000").id
    failed = rig.ended(poison)
    ended = [rig.ended(job_id) for job_id in healthy]
    assert failed.status is Status.FAILED
    assert failed.error and failed.error["code"] == "worker_lost"
    assert failed.attempts == {"thinker": rig.settings.max_attempts}
    assert [job.status for job in ended] == [Status.SUCCEEDED] * len(healthy)
    left = [line for line in rig.said[before:] if "thinker ended" in line]
    # The last one may still be about to go: what it held is given up before.
    assert len(left) >= rig.settings.max_attempts - 1
    assert all(f"exit code {LEFT_EXIT}" in line for line in left)
