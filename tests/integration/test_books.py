"""The books of a running system: right when nothing is wrong, and each fault is found and mended."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.conftest import System
from workers import keys
from workers.books import Books
from workers.job import Job, WebhookTarget
from workers.results import remove_objects

LEASES = keys.CONTROL_PREFIXES["leases"]


def kinds(system: System) -> list[str]:
    return [fault.kind for fault in Books(system.backend).faults()]


def test_a_job_that_fell_out_of_the_queue_is_put_back(system: System) -> None:
    job = system.submit(text="tokens=1")
    system.backend.client.zrem(keys.ready("thinker.noop"), job.id)
    _mend(system, "stage_not_in_queue")
    system.start("thinker", "token2wav", "scheduler")
    system.wait_success(job.id)


def test_a_webhook_that_nobody_would_send_is_owed_again(system: System) -> None:
    target = WebhookTarget("http://127.0.0.1:9/", ("job.canceled",))
    job = system.submit(webhook=target)
    system.backend.jobs.cancel(job.id)
    system.backend.client.delete(keys.CONTROL_PREFIXES["deliveries_due"])
    _mend(system, "webhook_not_due")
    assert system.backend.deliveries.count_due(time.time()) == 1


def test_the_books_of_a_system_that_has_worked_are_right(running: System) -> None:
    for mode in ("sequential", "async_chunk"):
        running.wait_success(running.submit(text="tokens=40", mode=mode).id)
    running.backend.jobs.cancel(running.submit(text="tokens=900 delay_ms=10").id)
    assert Books(running.backend).faults() == []


def test_a_running_stage_that_nobody_holds_is_taken_back(running: System) -> None:
    job = running.submit(text="tokens=60 delay_ms=30")
    running.wait_until(lambda: running.job(job.id).started_at is not None, "it runs")
    running.kill("thinker")
    running.backend.client.zrem(LEASES, f"{job.id}|thinker")
    assert "stage_without_lease" in kinds(running)
    _mend(running, "stage_without_lease")
    running.start("thinker")
    running.wait_success(job.id)


def _lost_object(system: System, job: Job) -> None:
    system.backend.objects.delete(str((job.result or {})["audio_key"]))


def _second_end(system: System, job: Job) -> None:
    system.backend.events.append(job.id, "failed", {})


def _wrong_name(system: System, job: Job) -> None:
    system.backend.client.zadd(keys.index("status:running"), {job.id: 0})


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(_lost_object, "wrong_object"), (_second_end, "wrong_end"), (_wrong_name, "wrong_index")],
)
def test_what_cannot_be_mended_is_named(
    running: System, damage: Callable[[System, Job], None], kind: str
) -> None:
    job = running.wait_success(running.submit(text="tokens=2").id)
    damage(running, job)
    assert [(fault.kind, fault.subject) for fault in Books(running.backend).faults()] == [(kind, job.id)]
    running.backend.jobs.delete(job.id)
    remove_objects(running.backend.objects, job.id)
    running.backend.client.zrem(keys.index("status:running"), job.id)


def test_litter_is_found_and_swept(running: System) -> None:
    job = running.wait_success(running.submit(text="tokens=2").id)
    running.backend.objects.put_bytes(f"results/{job.id}/99.wav", b"of an attempt that lost", "audio/wav")
    running.backend.client.set("sw:{sw}:idempotency:litter", 1)
    assert sorted(kinds(running)) == ["key_without_ttl", "orphan_object"]
    _mend(running, "orphan_object", "key_without_ttl")
    assert running.backend.objects.size(f"results/{job.id}/99.wav") is None
    assert running.audio(job)


def _mend(system: System, *expected: str) -> None:
    books = Books(system.backend)
    faults = books.faults()
    assert {fault.kind for fault in faults} == set(expected)
    assert books.repair(faults, time.time() + 1) == len(faults)
    assert [fault for fault in books.faults() if fault in faults] == []
