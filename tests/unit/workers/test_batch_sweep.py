"""What batches leave behind, and what the sweep makes of it."""

from __future__ import annotations

import time

import redis

from tests.unit.workers.test_batch_feeder import Bench, bench, file_of
from workers import keys
from workers.batch_output import parts_prefix
from workers.books import Books
from workers.file_store import file_key, new_file_id
from workers.janitor import Janitor

__all__ = ["bench"]


def orphans(bench: Bench) -> list[str]:
    return sorted(Janitor(bench.backend).orphans(time.time() + 10, grace_s=0))


def test_files_and_outputs_go_with_their_records_and_no_sooner(
    bench: Bench, redis_client: redis.Redis
) -> None:
    objects = bench.backend.objects
    kept, lost = new_file_id(), new_file_id()
    for file_id in (kept, lost):
        objects.put_bytes(file_key(file_id), b"x", "application/jsonl")
    bench.backend.files.add(kept, 1, "x")
    running = bench.make(file_of(40))
    bench.tick(2)
    bench.work(most=5)
    bench.tick()
    assert list(objects.list(parts_prefix(running)))
    done = bench.run(bench.make(file_of(3))).id
    leftover = f"{parts_prefix(done)}output/00000001-00000002.jsonl"
    objects.put_bytes(leftover, b"x", "application/jsonl")
    assert orphans(bench) == [leftover, file_key(lost)]

    redis_client.delete(keys.batch(done))
    found = orphans(bench)
    assert f"batches/{done}/output.jsonl" in found and not any(running in key for key in found)
    Janitor(bench.backend).sweep(time.time() + 10, grace_s=0)
    assert orphans(bench) == []
    assert bench.backend.batches.page(None, 10)[0][0].id == running
    objects.delete(file_key(kept))


def test_names_of_files_go_with_their_records(bench: Bench, redis_client: redis.Redis) -> None:
    files = bench.backend.files
    sent = [files.add(new_file_id(), 1, "x").id for _ in range(6)]
    left = bench.run(bench.make(file_of(1))).output_file_id
    assert left is not None

    def listed(**how: object) -> list[str]:
        asked = {"purpose": None, "after": None, "limit": 2, "oldest_first": False} | how
        return [file.id for file in files.page(**asked)[0]]

    def names(index: str) -> list[str]:
        return [name.decode() for name in redis_client.zrange(keys.files(index), 0, -1)]

    assert listed(purpose="batch_output") == [left] and listed() == [left, sent[5]]
    assert "unknown_key" not in [fault.kind for fault in Books(bench.backend).faults()]

    # A page leaves out what has run out, and the sweep drops its names
    redis_client.delete(keys.file(sent[5]), keys.file(sent[0]))
    assert listed() == [left, sent[4]]
    redis_client.delete(keys.file(left))
    Janitor(bench.backend).sweep(time.time())
    assert names("all") == names("batch") == sent[1:5] and names("batch_output") == []
