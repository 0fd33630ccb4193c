"""Feeds the lines of batches to the queue, a window at a time, and puts their outcomes together.

It may run many times: one leads. Whatever it does next follows from the records, and each step moves the
record in the same script that does what the step is for: so a feeder may be killed at any moment, and two
of them may lead for a while, and each line still becomes one job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.backend import Backend
from workers.batch import Batch, BatchStatus, line_job_id
from workers.batch_entries import BatchEntries, fault_of
from workers.batch_lines import MAX_LINES
from workers.batch_output import BatchOutput
from workers.batch_pace import BatchPace
from workers.leader import Leadership

_log = logging.getLogger(__name__)

TICK_S = 0.2
_FED_AT_ONCE = 100
"""Lines that become jobs in one step: it holds up the broker for some milliseconds."""
_SPREAD = 50_000
"""Lines that may be read ahead of the first one that has not ended: what is known of them is kept."""
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
        self._entries = BatchEntries(backend, deploys)
        self._pace = BatchPace(backend, deploys)
        self._clock = clock
        self._leadership = Leadership(backend.client, keys.FEEDER)
        self._output = BatchOutput(backend, clock)
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
            self._entries.forget_all()
            self._pace.forget_all()
            return False
        going = self._batches.going()
        self._turn += 1
        share = max(1, self._pace.window() // max(1, len(going)))
        busy = False
        # Round robin: whoever is first takes what room is left in the broker's time, so all take turns.
        for batch in going[self._turn % len(going) :] + going[: self._turn % len(going)] if going else ():
            try:
                busy = self._step(batch, share) or busy
            except StagewaveError as error:
                self._entries.forget(batch.id)
                _log.warning("batch not fed", extra={"batch_id": batch.id, "code": error.code.code})
            except Exception:
                # One that breaks must not hold up the others.
                self._entries.forget(batch.id)
                _log.exception("feeding a batch broke", extra={"batch_id": batch.id})
        if going:
            self._pace.ring()
        return busy

    def _step(self, batch: Batch, share: int) -> bool:
        self._pace.see(batch, self._clock())
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
        reader = self._entries.reader_at(batch, 0, 0)
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
            self._batches.end(batch, BatchStatus.FAILED, errors=[fault_of(error)])
            return
        self._batches.begin(batch.id, total)

    # -- lines become jobs -----------------------------------------------------------------------

    def _feed(self, batch: Batch, share: int) -> bool:
        """Up to ``share`` jobs may be outstanding. Whether there is room for more."""
        room = min(share - batch.outstanding, _FED_AT_ONCE)
        if batch.read_all or room <= 0 or batch.line - batch.written_line >= _SPREAD:
            return False
        try:
            found = self._entries.read(batch, room)
        except StagewaveError as error:
            if error.code.retryable:
                raise
            # The file is gone, or was changed: what was begun ends, and nothing more can be.
            self._entries.forget(batch.id)
            self._batches.cancel(batch.id, [fault_of(error)])
            return True
        pools = self._batches.feed(
            batch, found.lines, line=found.line, offset=found.offset, read_all=found.read_all
        )
        if pools is None or found.read_all:
            self._entries.forget(batch.id)
        return pools is not None and len(pools) >= room and not found.read_all

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
            self._entries.forget(batch.id)
            self._pace.forget(batch.id)
            self._output.forget(batch.id)
            _log.info("batch ended", extra={"batch_id": batch.id, "status": status.value})
