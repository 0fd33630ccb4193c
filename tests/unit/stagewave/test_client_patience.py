"""What the client tries again, how long, and that a second try is the same request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from stagewave.client import jobs
from stagewave.client.call import Answer, Call, Plan
from stagewave.client.patience import Patience, patiently
from stagewave.errors import ApiError, ClientError, NotFound, Unreachable
from stagewave.record import Job

Outcome = Answer | ClientError
JOB = Answer(201, {}, json.dumps({"id": "job_1", "status": "queued"}).encode())


def refused(status: int, code: str, **headers: str) -> Answer:
    return Answer(status, headers, json.dumps({"code": code, "detail": "no"}).encode())


AWAY = refused(503, "broker_unavailable")


class Network:
    """Answers calls one after the other, on a clock of its own that only pauses move."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes: Iterator[Outcome] = iter(outcomes)
        self.now = 0.0
        self.calls: list[Call] = []

    def run(
        self, plan: Plan[Job], patience_s: float = 20.0, chance: Callable[[], float] = lambda: 1.0
    ) -> Job:
        plan = patiently(plan, Patience(patience_s, clock=lambda: self.now, chance=chance))
        try:
            call = next(plan)
            while True:
                self.now += call.after_s
                self.calls.append(call)
                outcome = next(self._outcomes)
                call = plan.throw(outcome) if isinstance(outcome, ClientError) else plan.send(outcome)
        except StopIteration as end:
            made: Job = end.value
            return made


def submitting(key: str | None = None) -> Plan[Job]:
    return jobs.submit("tts", "hello", None, key, {})


def test_a_post_is_sent_again_under_the_same_key_until_it_is_answered() -> None:
    network = Network(Unreachable("broke"), AWAY, refused(429, "queue_full"), JOB)

    made = network.run(submitting())

    assert made.id == "job_1"
    keys = {call.headers["Idempotency-Key"] for call in network.calls}
    assert len(network.calls) == 4 and len(keys) == 1


def test_two_submits_without_a_key_have_keys_of_their_own() -> None:
    network = Network(JOB, JOB)

    network.run(submitting())
    network.run(submitting())

    assert network.calls[0].headers != network.calls[1].headers


def test_pauses_grow_and_half_of_each_is_chance() -> None:
    longest, shortest = Network(*[AWAY] * 4, JOB), Network(*[AWAY] * 4, JOB)

    longest.run(submitting(), chance=lambda: 1.0)
    shortest.run(submitting(), chance=lambda: 0.0)

    assert [call.after_s for call in longest.calls] == [0, 0.25, 0.5, 1, 2]
    assert [call.after_s for call in shortest.calls] == [0, 0.125, 0.25, 0.5, 1]


def test_what_the_server_asks_for_is_waited() -> None:
    network = Network(refused(429, "queue_full", **{"retry-after": "7"}), JOB)

    network.run(submitting())

    assert network.calls[1].after_s == 7.25


def test_patience_ends() -> None:
    network = Network(*[AWAY] * 100)

    with pytest.raises(ApiError) as refusal:
        network.run(submitting(), patience_s=20)

    assert refusal.value.code == "broker_unavailable"
    assert network.now <= 20


def test_a_wait_that_is_longer_than_patience_is_not_begun() -> None:
    network = Network(refused(503, "too_many_waiters", **{"retry-after": "60"}))

    with pytest.raises(ApiError) as refusal:
        network.run(submitting(), patience_s=20)

    assert (network.now, refusal.value.retry_after_s) == (0, 60)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 413, 422, 500])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    network = Network(refused(status, "no"), JOB)

    with pytest.raises(ApiError):
        network.run(submitting())

    assert len(network.calls) == 1


def test_each_call_of_a_plan_has_its_own_patience() -> None:
    running = Answer(200, {}, json.dumps({"id": "job_1", "status": "running"}).encode())
    done = Answer(200, {}, json.dumps({"id": "job_1", "status": "succeeded"}).encode())
    network = Network(*[AWAY] * 5, running, *[AWAY] * 5, done)

    assert network.run(jobs.wait("job_1", None), patience_s=10).succeeded


def test_a_job_deleted_by_a_try_whose_answer_was_lost_is_deleted() -> None:
    network = Network(Unreachable("broke"), refused(410, "gone"))

    network.run(jobs.delete("job_1"))  # type: ignore[arg-type]  # of no job

    with pytest.raises(NotFound):
        Network(refused(404, "not_found")).run(jobs.delete("job_1"))  # type: ignore[arg-type]  # of no job


def test_an_answer_that_is_not_stagewaves_says_so() -> None:
    for body in (b"<html>", b"[]", b'"x"', b"\xff"):
        with pytest.raises(ApiError) as refusal:
            Network(Answer(404, {}, body)).run(jobs.get("job_1", 0))
        assert refusal.value.code == "not_stagewave"


def test_an_id_names_nothing_but_a_job() -> None:
    network = Network(JOB)

    network.run(jobs.get("../../healthz?x=é", 0))

    assert network.calls[0].path == "/v1/jobs/..%2F..%2Fhealthz%3Fx%3D%C3%A9"


def test_a_file_is_never_mistaken_for_a_url() -> None:
    with pytest.raises(ValueError, match="Path"):
        next(jobs.submit("asr", None, "talk.wav", None, {}))
