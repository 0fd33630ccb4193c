"""The books of a running system: right when nothing is wrong, and each fault is found and mended."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable

import pytest

from stagewave import exits
from tests.integration.conftest import System, wav
from tests.integration.test_up import STAGEWAVE
from workers import keys
from workers.books import Books
from workers.broker import broker_time
from workers.janitor import Janitor
from workers.job import Job, WebhookTarget, new_job_id
from workers.results import remove_objects
from workers.settings import to_environ

LEASES = keys.CONTROL_PREFIXES["leases"]


def kinds(system: System) -> list[str]:
    return [fault.kind for fault in Books(system.backend, grace_s=0).faults()]


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
    assert Books(running.backend, grace_s=0).faults() == []


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
    system.backend.client.xadd(keys.events(job.id), {"n": "failed", "d": "{}"})


@pytest.mark.parametrize(("damage", "kind"), [(_lost_object, "wrong_object"), (_second_end, "wrong_end")])
def test_what_cannot_be_mended_is_named(
    running: System, damage: Callable[[System, Job], None], kind: str
) -> None:
    job = running.wait_success(running.submit(text="tokens=2").id)
    damage(running, job)
    assert [(fault.kind, fault.subject) for fault in Books(running.backend, grace_s=0).faults()] == [
        (kind, job.id)
    ]
    running.backend.jobs.delete(job.id)
    remove_objects(running.backend.objects, job.id)


def test_a_job_that_the_indexes_name_wrongly_or_not_at_all_is_named_again(running: System) -> None:
    client = running.backend.client
    wrong, unnamed = (running.wait_success(running.submit(text="tokens=2").id).id for _ in range(2))
    client.zadd(keys.index("status:running"), {wrong: 0})
    client.zrem(keys.index("all"), unnamed)
    _mend(running, "wrong_index")
    assert client.zscore(keys.index("status:running"), wrong) is None
    assert client.zscore(keys.index("all"), unnamed) is not None


def test_a_key_that_nobody_knows_is_named_and_left_alone(running: System) -> None:
    running.backend.client.set("sw:{sw}:of-a-later-release", 1)
    books = Books(running.backend, grace_s=0)
    faults = books.faults()
    assert [fault.kind for fault in faults] == ["unknown_key"]
    assert books.repair(faults) == 0
    assert running.backend.client.ttl("sw:{sw}:of-a-later-release") == -1
    running.backend.client.delete("sw:{sw}:of-a-later-release")


def test_an_upload_whose_job_is_about_to_be_made_is_no_litter(running: System) -> None:
    running.backend.objects.put_bytes(f"inputs/{new_job_id()}", wav(), "audio/wav")
    books = Books(running.backend)
    assert books.faults() == []
    Janitor(running.backend).sweep(broker_time(running.backend.client) + 2, grace_s=0)


def test_litter_is_found_and_swept(running: System) -> None:
    job = running.wait_success(running.submit(text="tokens=2").id)
    running.backend.objects.put_bytes(f"results/{job.id}/99.wav", b"of an attempt that lost", "audio/wav")
    running.backend.client.set("sw:{sw}:idempotency:litter", 1)
    assert sorted(kinds(running)) == ["key_without_ttl", "orphan_object"]
    _mend(running, "orphan_object", "key_without_ttl")
    assert running.backend.objects.size(f"results/{job.id}/99.wav") is None
    assert running.audio(job)


def _mend(system: System, *expected: str) -> None:
    books = Books(system.backend, grace_s=0)
    faults = books.faults()
    assert {fault.kind for fault in faults} == set(expected)
    assert books.repair(faults) == len(faults)
    assert [fault for fault in books.faults() if fault in faults] == []


# -- the command ---------------------------------------------------------------------------------


def doctor(system: System, *options: str) -> tuple[int, dict[str, object]]:
    """Exit code and answer of the command, as somebody runs it beside the system."""
    environ = {"PATH": os.environ["PATH"], **to_environ(system.settings)}
    done = subprocess.run(
        [*STAGEWAVE, "doctor", "--books", "--json", *options], env=environ, capture_output=True, timeout=60
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_doctor_mends_the_books_of_a_running_system(running: System) -> None:
    client = running.backend.client
    done = running.wait_success(running.submit(text="tokens=3").id)
    assert doctor(running) == (0, {"ok": True, "faults": [], "mended": 0})

    running.kill("thinker")
    lost = running.submit(text="tokens=3")
    client.zrem(keys.ready("thinker.noop"), lost.id)
    client.zrem(keys.CONTROL_PREFIXES["deadlines"], lost.id)
    hooked = running.submit(webhook=WebhookTarget("http://127.0.0.1:9/", ("job.canceled",)))
    running.kill("io")
    running.backend.jobs.cancel(hooked.id)
    client.delete(keys.CONTROL_PREFIXES["deliveries_due"])
    client.zadd(keys.index("status:running"), {done.id: 0})
    client.persist(keys.job(done.id))
    broken = {
        ("stage_not_in_queue", f"{lost.id}|thinker"),
        ("no_deadline", lost.id),
        ("wrong_index", done.id),
        ("key_without_ttl", keys.job(done.id)),
    }
    code, told = doctor(running)
    found = {(fault["kind"], fault["subject"]) for fault in told["faults"]}
    assert (code, told["mended"]) == (1, 0)
    assert broken < found
    assert {kind for kind, _ in found - broken} == {"webhook_not_due"}

    code, told = doctor(running, "--repair")
    assert (code, told["mended"]) == (0, len(found))
    running.start("thinker", "io")
    running.wait_success(lost.id)
    assert doctor(running) == (0, {"ok": True, "faults": [], "mended": 0})


def test_the_doctor_says_what_it_cannot_mend(running: System) -> None:
    job = running.wait_success(running.submit(text="tokens=2").id)
    _lost_object(running, job)
    code, told = doctor(running, "--repair")
    assert (code, told["mended"]) == (1, 0)
    assert [(fault["kind"], fault["subject"]) for fault in told["faults"]] == [("wrong_object", job.id)]
    running.backend.jobs.delete(job.id)
    remove_objects(running.backend.objects, job.id)


def test_the_doctor_of_a_system_that_is_away_says_so(running: System) -> None:
    environ = {"PATH": os.environ["PATH"], **to_environ(running.settings)}
    environ["STAGEWAVE_REDIS_URL"] = "redis://127.0.0.1:1/0"
    done = subprocess.run(
        [*STAGEWAVE, "doctor", "--books"], env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == exits.UNREACHABLE
    assert "Traceback" not in done.stderr
