"""Feeds the lines of batches to the queue, a window at a time, and puts their outcomes together.

It may run many times: one leads. Whatever it does next follows from the records, and each step moves the
record in the same script that does what the step is for: so a feeder may be killed at any moment, and two
of them may lead for a while, and each line still becomes one job.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.backend import Backend
from workers.batch import Batch, BatchStatus, line_job_id
from workers.batch_lines import MAX_LINES, LineReader
from workers.batch_output import BatchOutput
from workers.batch_request import LineJob, LineRefused, LineRules
from workers.batch_store import Chosen
from workers.bell import waiting_bells
from workers.broker import broker_errors
from workers.faults import InvalidRequest
from workers.input_audio import SentBytes
from workers.job import AudioSource, JsonObject
from workers.leader import Leadership
from workers.results import input_key
from workers.states import Stage, pools_of

_log = logging.getLogger(__name__)

TICK_S = 0.2
_FED_AT_ONCE = 100
"""Lines that become jobs in one step: it holds up the broker for some milliseconds."""
_PASSED_AT_ONCE = 10_000
_SPREAD = 50_000
"""Lines that may be read ahead of the first one that has not ended: what is known of them is kept."""
_WINDOW = (32, 2000)
_WINDOW_ROUNDS = 4
"""Of the pools' slots: enough that no worker runs dry between two looks."""
_WINDOW_S = 2.0
"""Or what ends in so long, where jobs are short."""
_RATE_OVER_S = 20.0
_LOOKED_FOR_LEADER = 50_000
_CANCELED_AT_ONCE = 500


class BatchFeeder:
    """``tick`` is one step of every batch; ``run`` is the loop around it."""

    def __init__(
        self,
        backend: Backend,
        deploys: Sequence[DeployConfig],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._batches = backend.batches
        self._rules = LineRules(backend, deploys)
        self._pools = pools_of(deploys)
        self._clock = clock
        self._leadership = Leadership(backend.client, keys.FEEDER)
        self._output = BatchOutput(backend, clock)
        self._readers: dict[str, LineReader] = {}
        self._chosen: dict[str, Chosen] = {}
        self._rates: dict[str, _Rate] = {}
        self._turn = 0

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set."""
        busy = False
        while not stop.wait(0 if busy else TICK_S):
            try:
                busy = self.tick()
            except StagewaveError as error:
                busy = False
                _log.warning("batches not fed", extra={"code": error.code.code})
            except Exception:
                # The edge of a step: the next one starts from what is in the store.
                busy = False
                _log.exception("feeding broke")
        try:
            self._leadership.resign()
        except StagewaveError:
            _log.warning("leadership not handed over")

    def tick(self) -> bool:
        """One step of each batch that has not ended; whether there is more to do at once."""
        if not self._leadership.hold():
            self._forget_all()
            return False
        going = self._batches.going()
        self._turn += 1
        share = max(1, self._window() // max(1, len(going)))
        busy = False
        # Round robin: whoever is first takes what room is left in the broker's time, so all take turns.
        for batch in going[self._turn % len(going) :] + going[: self._turn % len(going)] if going else ():
            try:
                busy = self._step(batch, share) or busy
            except StagewaveError as error:
                self._forget(batch.id)
                _log.warning("batch not fed", extra={"batch_id": batch.id, "code": error.code.code})
            except Exception:
                # One that breaks must not hold up the others.
                self._forget(batch.id)
                _log.exception("feeding a batch broke", extra={"batch_id": batch.id})
        if going:
            self._ring()
        return busy

    def _step(self, batch: Batch, share: int) -> bool:
        self._rate(batch).see(batch.ended, self._clock())
        drained = batch.read_all or batch.status is not BatchStatus.IN_PROGRESS
        drained = drained and not batch.outstanding
        match batch.status:
            case BatchStatus.VALIDATING:
                self._validate(batch)
                return True
            case BatchStatus.IN_PROGRESS:
                wrote = self._output.write(batch, drained=drained)
                if drained and batch.written_line == batch.line:
                    self._batches.finalize(batch.id)
                    return True
                return self._feed(batch, share) or wrote
            case BatchStatus.FINALIZING:
                self._end(batch, BatchStatus.COMPLETED)
            case BatchStatus.CANCELLING:
                self._cancel(batch)
                wrote = self._output.write(batch, drained=drained)
                if drained and batch.written_line == batch.line:
                    self._end(batch, BatchStatus.FAILED if batch.errors else BatchStatus.CANCELLED)
                return wrote
        return False

    # -- the file as a whole ---------------------------------------------------------------------

    def _validate(self, batch: Batch) -> None:
        """Count the lines, and see that the file has any; what each says is looked at in its turn."""
        chosen = self._batches.chosen(batch)
        reader = self._reader_at(batch, 0, 0)
        total = 0
        try:
            while (line := reader.peek()) is not None:
                reader.go_on()
                if line.number > MAX_LINES:
                    raise StagewaveError(ErrorCode.TOO_LARGE, f"a batch may have {MAX_LINES} lines at most")
                if line.number % _LOOKED_FOR_LEADER == 0 and not self._leadership.hold():
                    return
                total += not line.blank and line.number in chosen
            if not total and batch.spec.resumes is None:
                raise StagewaveError(ErrorCode.INVALID_REQUEST, "there is no line in the file")
        except StagewaveError as error:
            if error.code.retryable:
                raise
            self._batches.end(batch, BatchStatus.FAILED, errors=[_fault(error)])
            return
        self._batches.begin(batch.id, total)

    # -- lines become jobs -----------------------------------------------------------------------

    def _feed(self, batch: Batch, share: int) -> bool:
        """Up to ``share`` jobs may be outstanding. Whether there is room for more."""
        room = min(share - batch.outstanding, _FED_AT_ONCE)
        if batch.read_all or room <= 0 or batch.line - batch.written_line >= _SPREAD:
            return False
        try:
            fed = self._next_lines(batch, room)
        except StagewaveError as error:
            if error.code.retryable:
                raise
            # The file is gone, or was changed: what was begun ends, and nothing more can be.
            self._forget(batch.id)
            self._batches.cancel(batch.id, [_fault(error)])
            return True
        reader = self._readers[batch.id]
        read_all = reader.peek() is None
        pools = self._batches.feed(batch, fed, line=reader.line, offset=reader.offset, read_all=read_all)
        if pools is None or read_all:
            self._forget(batch.id)
        return pools is not None and len(pools) >= min(room, _FED_AT_ONCE) and not read_all

    def _next_lines(self, batch: Batch, room: int) -> list[JsonObject]:
        reader = self._readers.get(batch.id)
        if reader is None or reader.line != batch.line:
            reader = self._readers[batch.id] = self._reader_at(batch, batch.line, batch.offset)
        if batch.id not in self._chosen:
            self._chosen[batch.id] = self._batches.chosen(batch)
        chosen = self._chosen[batch.id]
        fed: list[JsonObject] = []
        lengths: list[tuple[int, JsonObject]] = []
        passed = 0
        while len(lengths) < room and passed < _PASSED_AT_ONCE and (line := reader.peek()) is not None:
            if line.blank or line.number not in chosen:
                passed += 1
                if fed and fed[-1].get("to") == line.number - 1:
                    fed[-1]["to"] = line.number
                else:
                    fed.append({"line": line.number, "to": line.number})
            else:
                entry, length = self._entry(batch, line.number, line.data)
                fed.append(entry)
                lengths.append((length, entry))
            reader.go_on()
        # Those of like length stand beside each other in the queue: a batch of the engine is as long as its
        # longest.
        lengths.sort(key=lambda item: item[0])
        for rank, (_, entry) in enumerate(lengths):
            if isinstance(fields := entry.get("fields"), list):
                fields += ["rank", str(rank)]
        return fed

    def _entry(self, batch: Batch, number: int, data: bytes | None) -> tuple[JsonObject, int]:
        """A line as ``lua/batch_feed.lua`` has it, and how long its input is."""
        try:
            if data is None:
                raise LineRefused(StagewaveError(ErrorCode.TOO_LARGE, "the line is too long"), None)
            wanted = self._rules.read(data, number, batch.id, batch.spec)
        except LineRefused as refused:
            return {"line": number, "error": _refusal(refused.custom_id, refused.error)}, 0
        job_id = line_job_id(batch.id, number)
        spec, length = wanted.spec, len(wanted.spec.text)
        if wanted.audio is not None:
            source = self._stored(job_id, wanted)
            spec, length = replace(spec, audio=source), source.size_bytes or 0
        entry: JsonObject = {
            "line": number,
            "job": job_id,
            "type": spec.type.value,
            "stage": spec.stages[0].value,
            "deadline_ms": self._backend.jobs.deadline_ms(spec),
            "fields": [*map(str, self._backend.jobs.fields(spec)), "line", str(number)],
        }
        if wanted.custom_id is not None:
            taken = StagewaveError(
                ErrorCode.INVALID_REQUEST, "another line before has this custom_id", field="custom_id"
            )
            entry["name"] = hashlib.sha256(wanted.custom_id.encode()).hexdigest()[:32]
            entry["duplicate"] = _refusal(wanted.custom_id, taken)
        return entry, length

    def _stored(self, job_id: str, wanted: LineJob) -> AudioSource:
        if not isinstance(wanted.audio, SentBytes):
            assert wanted.audio is not None  # noqa: S101  # the caller has looked
            return wanted.audio
        key = input_key(job_id)
        self._backend.objects.put_file(key, wanted.audio.stream, "application/octet-stream")
        return AudioSource("upload", key=key, size_bytes=wanted.audio.size_bytes)

    def _reader_at(self, batch: Batch, line: int, offset: int) -> LineReader:
        size = batch.input_bytes
        return LineReader(self._backend.objects, batch.spec.input_key, size, line=line, offset=offset)

    # -- how much at a time ----------------------------------------------------------------------

    def _window(self) -> int:
        """Jobs that may be outstanding, of all batches together."""
        live = self._backend.pools.workers()
        slots = sum(worker.concurrency for worker in live if worker.stage == Stage.THINKER)
        per_s = sum(rate.per_s for rate in self._rates.values())
        least, most = _WINDOW
        most = min(most, max(1, self._backend.settings.queue_limit // 2))
        return min(max(least, _WINDOW_ROUNDS * slots, int(_WINDOW_S * per_s)), most)

    def _ring(self) -> None:
        """Wake threads that are free where jobs of batches wait; a busy one looks for more by itself."""
        waiting = {pool: n for pool, n in self._backend.jobs.batch_depths(self._pools).items() if n}
        if not waiting:
            return
        live = self._backend.pools.workers()
        for pool, depth in waiting.items():
            free = sum(max(0, w.room_for_batches - w.running) for w in live if w.pool == pool)
            with broker_errors():
                if not free or waiting_bells(self._backend.client, pool):
                    continue
            for _ in range(min(free, depth)):
                self._backend.bell.ring(pool)

    def _rate(self, batch: Batch) -> _Rate:
        rate = self._rates.setdefault(batch.id, _Rate())
        if rate.is_news(self._clock()):
            self._batches.set_rate(batch.id, rate.per_s)
        return rate

    # -- how it ends -----------------------------------------------------------------------------

    def _cancel(self, batch: Batch) -> None:
        """End what is queued or running, some at a time."""
        first = batch.written_line + 1
        while batch.outstanding and first <= batch.line:
            last = min(first + _CANCELED_AT_ONCE - 1, batch.line)
            ids = [line_job_id(batch.id, number) for number in range(first, last + 1)]
            for job_id, status in zip(ids, self._backend.jobs.statuses(ids), strict=True):
                if status is None or status.terminal:
                    continue
                try:
                    self._backend.jobs.cancel(job_id)
                except StagewaveError as error:
                    if error.code.retryable:
                        raise
            first = last + 1

    def _end(self, batch: Batch, status: BatchStatus) -> None:
        output, error = self._output.join(batch, "output"), self._output.join(batch, "error")
        if self._batches.end(batch, status, output=output, error=error, errors=batch.errors):
            self._forget(batch.id)
            self._rates.pop(batch.id, None)
            self._output.forget(batch.id)
            _log.info("batch ended", extra={"batch_id": batch.id, "status": status.value})

    def _forget(self, batch_id: str) -> None:
        """What was read ahead; the next step reads it again."""
        self._readers.pop(batch_id, None)
        self._chosen.pop(batch_id, None)

    def _forget_all(self) -> None:
        self._readers.clear()
        self._chosen.clear()
        self._rates.clear()


class _Rate:
    """Lines that end in a second, of late."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._told_at = 0.0

    def see(self, ended: int, now: float) -> None:
        if not self._seen or now - self._seen[-1][0] >= 0.5:
            self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float:
        if len(self._seen) < 2:
            return 0.0
        (then, before), (now, ended) = self._seen[0], self._seen[-1]
        return (ended - before) / (now - then)

    def is_news(self, now: float) -> bool:
        if now - self._told_at < 1.0:
            return False
        self._told_at = now
        return True


def _refusal(custom_id: str | None, error: StagewaveError) -> str:
    return json.dumps({"custom_id": custom_id, "error": _fault(error)}, ensure_ascii=False)


def _fault(error: StagewaveError) -> JsonObject:
    fault: JsonObject = {"code": error.code.code, "message": error.message}
    if error.field is not None:
        fault["field"] = error.field
    if isinstance(error, InvalidRequest):
        fault["errors"] = [{"field": f.field, "detail": f.message} for f in error.faults]
    return fault
