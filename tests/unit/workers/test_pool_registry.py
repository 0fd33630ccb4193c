"""Which workers live."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest
import redis

from workers.pool_registry import PoolRegistry, PoolWorker


@pytest.fixture
def pools(redis_client: redis.Redis) -> PoolRegistry:
    return PoolRegistry(redis_client)


def worker(name: str, pid: int | None = None) -> PoolWorker:
    return PoolWorker(name, "thinker.noop", "thinker", "noop", concurrency=1, pid=pid or os.getpid())


def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_a_worker_of_this_machine_whose_process_is_gone_is_signed_off(pools: PoolRegistry) -> None:
    """So a system that crashed and is started again does not take the old workers for its own."""
    gone = dead_pid()
    for record in (worker("lives"), worker("died", gone), replace(worker("elsewhere", gone), host="other")):
        pools.beat(record)
    pools.forget_dead()
    left = {record.worker_id for record in pools.workers()}  # others' tests leave workers there too
    assert left & {"lives", "died", "elsewhere"} == {"lives", "elsewhere"}


def test_a_pool_was_last_ready_when_a_worker_of_it_was(pools: PoolRegistry) -> None:
    pools.beat(worker("w"))
    assert pools.last_ready("thinker.noop") is None
    pools.beat(replace(worker("w"), state="ready"))
    seen = pools.last_ready("thinker.noop")
    assert seen is not None
    pools.leave("w")
    assert pools.last_ready("thinker.noop") == seen


def test_a_worker_is_seen_by_the_brokers_clock(pools: PoolRegistry, redis_client: redis.Redis) -> None:
    pools.beat(worker("w"))
    assert abs(pools.workers()[0].seen_at - redis_client.time()[0]) < 2
