"""The feeder, one step at a time, on a real broker and object store; the tests do the workers' part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers import keys
from workers.backend import Backend, connect_backend
from workers.batch import Batch, BatchSpec, BatchStatus, line_job_id, new_batch_id
from workers.batch_feeder import BatchFeeder
from workers.batch_output import parts_prefix, read_output
from workers.idempotency import Idempotency
from workers.job import AudioSource, JobSpec, WebhookTarget, new_job_id
from workers.pool_registry import PoolWorker
from workers.settings import Settings
from workers.states import Stage

POOL = "thinker.noop"
DEPLOY = DeployConfig(model="noop", engine="noop", stages=({"stage_id": 0}, {"stage_id": 1}))
KEY = "uploads/lines"
BUCKET = "lines"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A feeder and what a test does around it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.clock = Clock()
        self.feeder = BatchFeeder(backend, [DEPLOY], self.clock)

    def make(self, data: bytes, **spec: object) -> str:
        self.backend.objects.put_bytes(KEY, data, "application/jsonl")
        made = BatchSpec(KEY, **spec)
        return self.backend.batches.create(new_batch_id(), made, len(data))[0].id

    def take_up(self, batch_id: str, only: str) -> str:
        old = self.backend.batches.get(batch_id)
        spec = replace(old.spec, resumes=batch_id, only=only)
        return self.backend.batches.create(new_batch_id(), spec, old.input_bytes)[0].id

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 60
            self.feeder.tick()

    def work(self, most: int = 10_000, fail: tuple[int, ...] = ()) -> list[int]:
        """End jobs that are ready, and give their lines; those in ``fail`` end badly."""
        lines = []
        while (
            len(lines) < most and (claim := self.backend.claims.claim(POOL, Stage.THINKER, "w")) is not None
        ):
            assert claim.job.spec.line is not None
            lines.append(claim.job.spec.line.number)
            if lines[-1] in fail:
                self.backend.claims.fail(claim, StagewaveError(ErrorCode.NOT_AUDIO, "this is no audio"))
            else:
                said = {"text": f"heard {lines[-1]}", "language": "en", "finish_reason": "stop"}
                self.backend.claims.succeed(claim, said, {"audio_in_s": 1.5, "text_tokens": 2})
        return lines

    def run(self, batch_id: str, **how: object) -> Batch:
        for _ in range(100):
            self.tick()
            self.work(**how)
            if (batch := self.get(batch_id)).status.terminal:
                return batch
        raise AssertionError(f"it does not end: {batch}")

    def get(self, batch_id: str) -> Batch:
        return self.backend.batches.get(batch_id)

    def jobs_of(self, batch_id: str) -> int:
        return self.backend.client.zcard(keys.index(f"batch:{batch_id}"))

    def lines(self, batch_id: str, kind: str = "output") -> list[dict]:
        data = b"".join(read_output(self.backend, self.get(batch_id), kind))
        assert not data or data.endswith(b"\n")
        return [json.loads(line) for line in data.splitlines()]

    def numbers(self, batch_id: str, kind: str = "output") -> list[int]:
        return [line["line"] for line in self.lines(batch_id, kind)]


@pytest.fixture
def bench(settings: Settings, redis_client: redis.Redis) -> Iterator[Bench]:
    # A bucket of its own: what other tests left in theirs is none of its business.
    made = Bench(connect_backend(replace(settings, s3_bucket=BUCKET), patient_s=5))
    made.backend.objects.ensure_bucket()
    yield made
    for prefix in ("batches/", "uploads/", "inputs/"):
        made.backend.objects.delete_prefix(prefix)


def asr(name: object, **more: object) -> bytes:
    return json.dumps(
        {"custom_id": str(name), "type": "asr", "audio_url": f"s3://{BUCKET}/{KEY}", **more}
    ).encode()


def file_of(count: int) -> bytes:
    return b"\n".join(asr(n) for n in range(1, count + 1)) + b"\n"


def test_each_line_is_one_job_and_one_line_of_the_output_in_order(bench: Bench) -> None:
    batch_id = bench.make(file_of(150))
    batch = bench.run(batch_id)
    assert batch.status is BatchStatus.COMPLETED
    assert (batch.total, batch.succeeded, batch.failed, bench.jobs_of(batch_id)) == (150, 150, 0, 150)
    lines = bench.lines(batch_id)
    assert [(line["line"], line["custom_id"]) for line in lines] == [(n, str(n)) for n in range(1, 151)]
    first = lines[0]
    assert first["job_id"] == line_job_id(batch_id, 1)
    assert first["error"] is None and first["response"]["status_code"] == 200
    assert first["response"]["body"]["result"]["text"] == "heard 1"
    assert batch.usage["audio_in_s"] == 225.0 and batch.usage["text_tokens"] == 300
    assert batch.error_file_id is None and batch.output_file_id is not None
    output = bench.backend.files.get(batch.output_file_id)
    assert bench.backend.objects.size(output.key) == output.bytes
    assert not list(bench.backend.objects.list(parts_prefix(batch_id)))


def test_a_faulty_line_is_an_error_of_its_own(bench: Bench) -> None:
    lines = [asr(1), b'{"half', b"", asr(2), asr(1), b"\xff\xfe", asr(3, seed=-1), b"", asr(4)]
    batch_id = bench.make(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    batch = bench.run(batch_id, fail=(4,))
    assert batch.status is BatchStatus.COMPLETED
    assert (batch.total, batch.succeeded, batch.failed) == (7, 2, 5)
    assert bench.numbers(batch_id) == [1, 9]
    told = [
        (line["line"], line["custom_id"], line["error"]["code"]) for line in bench.lines(batch_id, "error")
    ]
    assert told == [
        (2, None, "invalid_json"),
        (4, "2", "not_audio"),
        (5, "1", "invalid_request"),
        (6, None, "invalid_json"),
        (7, "3", "invalid_request"),
    ]
    assert bench.lines(batch_id, "error")[2]["error"]["field"] == "custom_id"
    assert all(line["response"] is None for line in bench.lines(batch_id, "error"))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_request"),
        (b"\xef\xbb\xbf\r\n\r\n", "invalid_request"),
        ('{"type": "tts"}\n'.encode("utf-16"), "unsupported_media_type"),
    ],
)
def test_a_file_without_lines_fails_as_a_whole(bench: Bench, data: bytes, code: str) -> None:
    batch = bench.run(bench.make(data))
    assert batch.status is BatchStatus.FAILED
    assert [fault["code"] for fault in batch.errors] == [code]
    assert batch.total == batch.failed == 0


def test_a_feeder_that_dies_at_any_step_makes_no_line_two_jobs(bench: Bench) -> None:
    batch_id = bench.make(file_of(230))
    for _ in range(40):
        # Another one takes over at once, with nothing in its hands but what is in the store.
        bench.backend.client.delete(keys.FEEDER)
        bench.feeder = BatchFeeder(bench.backend, [DEPLOY], bench.clock)
        bench.tick()
        bench.work(most=17)
        if bench.get(batch_id).status.terminal:
            break
    assert bench.numbers(batch_id) == list(range(1, 231))
    assert bench.jobs_of(batch_id) == bench.get(batch_id).jobs == 230


def test_two_feeders_that_both_think_they_lead_make_no_line_two_jobs(bench: Bench) -> None:
    batch_id = bench.make(file_of(160))
    bench.tick()
    stale = bench.get(batch_id)
    other = BatchFeeder(bench.backend, [DEPLOY], bench.clock)
    bench.tick()
    assert bench.get(batch_id).jobs == 100
    # What the other one read before it slept is as old as this.
    other._feed(stale, 160)
    assert bench.get(batch_id).jobs == bench.jobs_of(batch_id) == 100
    again = bench.backend.batches.feed(stale, [], line=0, offset=0, read_all=False)
    assert again is None and bench.get(batch_id).line == 100


def test_what_a_slow_writer_wrote_too_late_is_never_read(bench: Bench) -> None:
    batch_id = bench.make(file_of(20))
    bench.tick(2)
    stale = bench.get(batch_id)
    bench.work(most=5)
    slow = BatchFeeder(bench.backend, [DEPLOY], bench.clock)
    slow._output._write_part(stale, 3)
    bench.work()
    slow._output._write_part(stale, 20)
    assert bench.numbers(batch_id) == [1, 2, 3]
    batch = bench.run(batch_id)
    assert bench.numbers(batch_id) == list(range(1, 21)) and batch.succeeded == 20


def test_the_queue_is_never_flooded_and_never_dry(bench: Bench) -> None:
    batch_id = bench.make(file_of(400))
    bench.tick(6)
    assert bench.get(batch_id).outstanding == 100
    bench.backend.pools.beat(PoolWorker("w", POOL, "thinker", "noop", concurrency=50, pid=1, state="ready"))
    bench.tick(3)
    assert bench.get(batch_id).outstanding == 200
    bench.work(most=30)
    bench.tick()
    assert bench.get(batch_id).outstanding == 200


def test_two_batches_share_the_window_and_take_turns(bench: Bench) -> None:
    one = bench.make(file_of(200))
    two = bench.make(file_of(200))
    bench.tick(4)
    assert bench.get(one).outstanding == bench.get(two).outstanding == 50
    done = {one: 0, two: 0}
    for _ in range(6):
        while (claim := bench.backend.claims.claim(POOL, Stage.THINKER, "w")) is not None:
            done[claim.job.spec.batch_id] += 1
            bench.backend.claims.succeed(claim, {"text": ""}, {})
        bench.tick()
    assert done[one] == done[two] > 60


def test_jobs_of_batches_stand_behind_all_others(bench: Bench) -> None:
    batch_id = bench.make(b"\n".join(asr(n, priority=10) for n in range(20)), priority=10)
    bench.tick(2)
    assert bench.get(batch_id).outstanding == 20
    live = bench.backend.jobs.create(new_job_id(), live_spec(priority=-10))[0]
    claim = bench.backend.claims.claim(POOL, Stage.THINKER, "w", live_only=True)
    assert claim is not None and claim.job.id == live.id
    assert bench.backend.claims.claim(POOL, Stage.THINKER, "w", live_only=True) is None
    assert bench.backend.counts.batch_depths([POOL]) == {POOL: 20}
    assert bench.backend.counts.live_depths([POOL]) == {POOL: 0}


def test_short_inputs_stand_together(bench: Bench) -> None:
    texts = ["word " * n for n in (9, 1, 7, 2, 8)]
    bench.make(b"\n".join(json.dumps({"type": "tts", "text": text}).encode() for text in texts))
    bench.tick(2)
    claims = [bench.backend.claims.claim(POOL, Stage.THINKER, "w") for _ in texts]
    assert [len(claim.job.spec.text) for claim in claims if claim] == [5, 10, 35, 40, 45]


def test_the_output_grows_while_the_batch_runs_and_waits_for_the_line_before(bench: Bench) -> None:
    batch_id = bench.make(b"\n\n".join(asr(n) for n in range(1, 21)))
    bench.tick(2)
    bench.work(most=6)
    bench.tick()
    assert bench.numbers(batch_id) == [1, 3, 5, 7, 9, 11]
    slow = bench.backend.claims.claim(POOL, Stage.THINKER, "w")
    bench.work()
    bench.tick()
    assert bench.numbers(batch_id) == [1, 3, 5, 7, 9, 11]
    assert slow is not None
    bench.backend.claims.succeed(slow, {"text": ""}, {})
    bench.tick()
    assert bench.numbers(batch_id) == list(range(1, 40, 2))
    assert bench.run(batch_id).status is BatchStatus.COMPLETED


def test_while_a_batch_runs_its_rate_is_that_of_late(bench: Bench) -> None:
    batch_id = bench.make(file_of(10))
    bench.tick(3)
    bench.work(most=6)
    bench.tick(2)
    record = bench.get(batch_id).public()
    assert (record["status"], record["rate_per_s"], record["eta_s"]) == ("in_progress", 0.1, 40.0)


def test_a_reader_in_the_middle_of_the_parts_reads_on_when_they_are_joined(bench: Bench) -> None:
    batch_id = bench.make(file_of(30))
    bench.tick(2)
    for _ in range(3):
        bench.work(most=10)
        bench.tick()
    running = bench.get(batch_id)
    assert not running.status.terminal and len(bench.backend.batches.parts(batch_id, "output")) == 3
    reading = read_output(bench.backend, running, "output")
    got = next(reading)
    bench.run(batch_id)
    got += b"".join(reading)
    assert [json.loads(line)["line"] for line in got.splitlines()] == list(range(1, 31))


def test_cancel_keeps_what_is_done_and_a_new_batch_takes_up_the_rest(bench: Bench) -> None:
    batch_id = bench.make(file_of(160))
    bench.tick(2)
    bench.work(most=10, fail=(3,))
    running = bench.backend.claims.claim(POOL, Stage.THINKER, "w")
    assert running is not None
    assert bench.backend.batches.cancel(batch_id).status is BatchStatus.CANCELLING
    batch = bench.run(batch_id)
    assert batch.status is BatchStatus.CANCELLED
    assert (batch.total, batch.succeeded, batch.failed, batch.canceled) == (160, 9, 1, 150)
    assert not bench.backend.claims.succeed(running, {"text": ""}, {})
    assert bench.numbers(batch_id) == [1, 2, *range(4, 11)]
    failures = bench.lines(batch_id, "error")
    assert [f["error"]["code"] for f in failures] == ["not_audio", *["canceled"] * 90]
    with pytest.raises(StagewaveError) as caught:
        bench.backend.batches.cancel(batch_id)
    assert caught.value.code is ErrorCode.JOB_FINISHED

    unfinished = bench.run(bench.take_up(batch_id, "unfinished"))
    assert unfinished.spec.resumes == batch_id and unfinished.total == unfinished.succeeded == 150
    assert bench.numbers(unfinished.id) == list(range(11, 161))
    failed = bench.run(bench.take_up(batch_id, "failed"))
    assert failed.total == 1 and bench.numbers(failed.id) == [3]
    both = bench.run(bench.take_up(batch_id, "not_succeeded"), fail=(40,))
    assert both.total == 151 and bench.numbers(both.id, "error") == [40]
    last = bench.run(bench.take_up(both.id, "not_succeeded"))
    assert last.total == 1 and bench.numbers(last.id) == [40]


def test_a_batch_that_has_not_ended_cannot_be_taken_up(bench: Bench) -> None:
    batch_id = bench.make(file_of(3))
    with pytest.raises(StagewaveError) as caught:
        bench.take_up(batch_id, "failed")
    assert caught.value.code is ErrorCode.NOT_READY


def test_with_nothing_to_take_up_there_is_nothing_to_do(bench: Bench) -> None:
    batch_id = bench.run(bench.make(file_of(3))).id
    batch = bench.run(bench.take_up(batch_id, "failed"))
    assert (batch.status, batch.total, batch.jobs) == (BatchStatus.COMPLETED, 0, 0)


def test_a_name_taken_before_is_not_taken_up_either(bench: Bench) -> None:
    batch_id = bench.run(bench.make(asr(1) + b"\n" + asr(1))).id
    assert bench.get(batch_id).failed == 1
    assert bench.run(bench.take_up(batch_id, "not_succeeded")).total == 0


def test_a_deleted_job_is_a_line_of_the_errors_and_counts_as_that(bench: Bench) -> None:
    # Given one job that is queued, one that runs, one that has succeeded, one that has failed
    batch_id = bench.make(file_of(6))
    bench.tick(2)
    bench.work(most=2, fail=(2,))
    running = bench.backend.claims.claim(POOL, Stage.THINKER, "w")
    assert running is not None
    assert bench.get(batch_id).succeeded == bench.get(batch_id).failed == 1

    # When all four are deleted before their lines are written
    for line in (1, 2, 3, 4):
        bench.backend.jobs.delete(line_job_id(batch_id, line))
    batch = bench.run(batch_id)

    # Then each stands in the errors under its name, and the counts are those of the lines
    assert not bench.backend.claims.succeed(running, {"text": ""}, {})
    assert batch.status is BatchStatus.COMPLETED
    assert (batch.total, batch.succeeded, batch.failed, batch.canceled) == (6, 2, 1, 3)
    assert bench.numbers(batch_id) == [5, 6]
    errors = bench.lines(batch_id, "error")
    assert [(e["line"], e["custom_id"], e["job_id"], e["error"]["code"]) for e in errors] == [
        (line, str(line), line_job_id(batch_id, line), "not_audio" if line == 2 else "gone")
        for line in (1, 2, 3, 4)
    ]
    assert bench.run(bench.take_up(batch_id, "unfinished")).total == 3
    assert bench.run(bench.take_up(batch_id, "failed")).total == 1


def test_a_job_that_is_deleted_after_its_line_was_written_changes_nothing(bench: Bench) -> None:
    batch_id = bench.make(file_of(3))
    bench.tick(2)
    bench.work(most=1)
    bench.tick()
    bench.backend.jobs.delete(line_job_id(batch_id, 1))
    batch = bench.run(batch_id)
    assert (batch.succeeded, batch.canceled, bench.numbers(batch_id)) == (3, 0, [1, 2, 3])


def test_a_job_that_is_deleted_while_its_line_is_written_counts_as_what_the_line_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = bench.make(file_of(3))
    bench.tick(2)
    bench.work()
    put_bytes = bench.backend.objects.put_bytes

    def delete_first(*args: str) -> None:
        monkeypatch.undo()
        bench.backend.jobs.delete(line_job_id(batch_id, 1))
        put_bytes(*args)

    monkeypatch.setattr(bench.backend.objects, "put_bytes", delete_first)
    batch = bench.run(batch_id)
    assert (batch.succeeded, batch.canceled, bench.numbers(batch_id)) == (3, 0, [1, 2, 3])


def test_a_job_whose_record_ran_out_before_its_line_was_written_is_no_success(bench: Bench) -> None:
    batch_id = bench.make(file_of(2))
    bench.tick(2)
    bench.work()
    bench.backend.client.delete(keys.job(line_job_id(batch_id, 1)))
    batch = bench.run(batch_id)
    assert (batch.succeeded, batch.canceled, bench.numbers(batch_id)) == (1, 1, [2])
    assert [(e["line"], e["error"]["code"]) for e in bench.lines(batch_id, "error")] == [(1, "gone")]


def test_a_transcript_that_is_lost_is_an_error_of_its_own(bench: Bench) -> None:
    body = {"file": f"s3://{BUCKET}/{KEY}", "model": "noop", "response_format": "verbose_json"}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/audio/transcriptions", "body": body}
    batch_id = bench.make(json.dumps(line).encode())
    bench.tick(2)
    claim = bench.backend.claims.claim(POOL, Stage.THINKER, "w")
    assert claim is not None
    bench.backend.claims.succeed(claim, {"text": "", "transcript_key": "results/none/1.json"}, {})
    batch = bench.run(batch_id)
    assert (batch.succeeded, batch.canceled) == (0, 1)
    [error] = bench.lines(batch_id, "error")
    assert (error["custom_id"], error["error"]["code"]) == ("a", "gone")


def test_a_batch_whose_file_is_gone_fails_and_keeps_what_it_has(bench: Bench) -> None:
    batch_id = bench.make(b"\n".join(asr(n, metadata={"a": "x" * 15_000}) for n in range(300)))
    bench.tick(2)
    bench.work(most=20)
    bench.backend.objects.delete(KEY)
    bench.feeder = BatchFeeder(bench.backend, [DEPLOY], bench.clock)
    bench.backend.client.delete(keys.FEEDER)
    batch = bench.run(batch_id)
    assert batch.status is BatchStatus.FAILED
    assert [fault["code"] for fault in batch.errors] == ["not_found"]
    assert batch.succeeded >= 20 and bench.numbers(batch_id) == list(range(1, batch.succeeded + 1))


def test_audio_in_a_line_is_stored_before_its_job_is_made(bench: Bench) -> None:
    batch_id = bench.make(asr(1, audio_url="data:audio/wav;base64,AAAA"))
    bench.tick(2)
    job = bench.backend.jobs.get(line_job_id(batch_id, 1))
    assert job.spec.audio is not None and job.spec.audio.size_bytes == 3
    assert bench.backend.objects.size(f"inputs/{job.id}") == 3


def test_each_tenth_and_the_end_are_told_once(bench: Bench) -> None:
    hook = WebhookTarget(
        "http://127.0.0.1:9/x", ("batch.progress", "batch.completed"), "whsec_" + "QUJD" * 10
    )
    batch_id = bench.make(file_of(30), webhook=hook)
    bench.tick(2)
    for _ in range(30):
        bench.work(most=1)
    batch = bench.run(batch_id)
    told = bench.backend.deliveries.of_job(batch_id)
    assert [d.event for d in told] == ["batch.progress"] * 9 + ["batch.completed"]
    assert [d.id.rpartition("_")[2] for d in told] == [f"progress{n}0" for n in range(1, 10)] + [
        "completed"
    ]
    body = json.loads(bench.backend.deliveries.fix_body(told[-1], batch.public()))
    assert body["type"] == "batch.completed" and body["data"]["counts"]["succeeded"] == 30
    assert "secret" not in json.dumps(body) and KEY not in json.dumps(body)
    names = [event.name for event in bench.backend.events.read(batch_id)]
    assert names.count("progress") == 9 and names[-1] == "completed"


def test_everything_of_an_ended_batch_runs_out(bench: Bench) -> None:
    batch_id = bench.run(bench.make(b"\n" + file_of(5) + b"nonsense"), fail=(3,)).id
    lasting = [
        key
        for key in bench.backend.client.scan_iter(match=keys.starting_with(keys.batch(batch_id)))
        if bench.backend.client.ttl(key) == -1
    ]
    assert lasting == []
    assert bench.backend.client.ttl(keys.events(batch_id)) > 0
    assert bench.backend.client.zcard(keys.CONTROL_PREFIXES["batches_going"]) == 0


def test_one_key_makes_one_batch(bench: Bench) -> None:
    def create(fingerprint: str) -> tuple[Batch, bool]:
        key = Idempotency("k", fingerprint)
        return bench.backend.batches.create(new_batch_id(), BatchSpec(KEY), 1, idempotency=key)

    first, made = create("one")
    again, made_again = create("one")
    assert made and not made_again and again.id == first.id
    with pytest.raises(StagewaveError) as caught:
        create("two")
    assert caught.value.code is ErrorCode.IDEMPOTENCY_MISMATCH

    # When the batch's record has run out, and its key has not
    bench.backend.client.delete(keys.batch(first.id))
    with pytest.raises(StagewaveError) as caught:
        create("one")
    assert caught.value.code is ErrorCode.GONE


def live_spec(**more: object) -> JobSpec:
    return JobSpec(type=Task.ASR, model="noop", audio=AudioSource("s3", key=KEY), **more)
