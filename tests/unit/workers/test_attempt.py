"""Attempts side by side in one process."""

from __future__ import annotations

import time

from stage_pipeline.stages import Task
from tests.unit.workers.conftest import MakeJob
from workers.attempt import WAY_S, Attempt, LeaseKeeper
from workers.claim_store import ClaimStore
from workers.states import Stage


def begin(keeper: LeaseKeeper, claims: ClaimStore) -> Attempt:
    claim = claims.claim("thinker.noop", Stage.THINKER, "w")
    assert claim is not None
    return keeper.hold(claim)


def seconds_of(attempt: Attempt, steps: int) -> float:
    began = time.monotonic()
    assert list(attempt.steps(iter(range(steps)))) == list(range(steps))
    return time.monotonic() - began


def test_a_batchs_job_rests_while_a_live_one_begins(claims: ClaimStore, make_job: MakeJob) -> None:
    keeper = LeaseKeeper(claims, 1.0)
    make_job(Task.ASR, batch_id="batch_x")
    of_batch = begin(keeper, claims)
    assert seconds_of(of_batch, 20) < WAY_S / 2
    make_job(Task.ASR)
    live = begin(keeper, claims)
    assert seconds_of(live, 20) < WAY_S / 2
    assert WAY_S / 4 < seconds_of(of_batch, 20) < 2 * WAY_S, "it rests once, and not at each step"
