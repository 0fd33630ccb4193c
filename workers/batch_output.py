"""What a batch leaves: one JSON line for each line of its input, in that order, in the object store.

While the batch runs its outcomes lie there in parts, each with the outcomes of some lines; at the end the
parts are joined. A part's name says which lines it holds, and the record says which parts there are: a part
that a writer stored and did not come to record is never read.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.backend import Backend
from workers.batch import Batch, line_job_id
from workers.batch_request import JOBS, SPEECH, TRANSLATIONS
from workers.batch_store import Kind, Part
from workers.file_store import StoredFile, new_file_id
from workers.job import BatchLine, Job, JsonObject
from workers.object_store import ObjectStore
from workers.openai_transcription_request import TranscriptionRequest, transcription_body
from workers.states import Status

CONTENT_TYPE = "application/jsonl"
_PART_LINES = 500
_PART_EVERY_S = 2.0
_PART_SHARE = 0.02
"""Parts come less often the longer a batch runs: there are some hundreds of them, not thousands."""
_LOOKED_AT = (16, 512)
"""How many lines are looked at in one go: more while all of them have ended."""


def part_key(batch_id: str, kind: Kind, part: Part) -> str:
    return f"{parts_prefix(batch_id)}{kind}/{part.lines}.jsonl"


def parts_prefix(batch_id: str) -> str:
    return f"batches/{batch_id}/parts/"


def joined_key(batch_id: str, kind: Kind) -> str:
    return f"batches/{batch_id}/{kind}.jsonl"


def is_awaited(backend: Backend, key: str) -> bool:
    """Whether an object under ``batches/`` is a part, or the whole, of something that its batch leaves."""
    batch_id = key.split("/")[1]
    try:
        batch = backend.batches.get(batch_id)
    except StagewaveError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return False
        raise
    return not (batch.status.terminal and key.startswith(parts_prefix(batch_id)))


@dataclass
class _Progress:
    """Up to which line all are known to have ended, and when a part was last written."""

    line: int
    written_at: float


class BatchOutput:
    """Writes the outputs of all batches; used by one thread."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._progress: dict[str, _Progress] = {}

    def write(self, batch: Batch, *, drained: bool) -> bool:
        """One part, if there is enough for one, or enough time has passed, or (``drained``) no more comes.
        Whether there was."""
        progress = self._progress.setdefault(batch.id, _Progress(batch.written_line, self._clock()))
        progress.line = self._look_ahead(batch, max(progress.line, batch.written_line))
        ready = progress.line - batch.written_line
        waited_s = self._clock() - progress.written_at
        patience_s = max(_PART_EVERY_S, _PART_SHARE * (time.time() - batch.times["created"]))
        if not ready or not (drained or ready >= _PART_LINES or waited_s >= patience_s):
            return False
        self._write_part(batch, min(progress.line, batch.written_line + _PART_LINES))
        progress.written_at = self._clock()
        return True

    def join(self, batch: Batch, kind: Kind) -> StoredFile | None:
        """All parts of a kind as one object; None when there are none."""
        parts = self._backend.batches.parts(batch.id, kind)
        if not parts:
            return None
        blocks = _part_blocks(self._backend.objects, batch.id, kind, parts)
        key = joined_key(batch.id, kind)
        size = self._backend.objects.put_file(key, io.BufferedReader(_Joined(blocks)), CONTENT_TYPE)
        return StoredFile(
            new_file_id(), key, size, f"{batch.id}_{kind}.jsonl", "batch_output", time.time(), batch.id
        )

    def forget(self, batch_id: str) -> None:
        """The batch has ended: its parts have been joined."""
        self._progress.pop(batch_id, None)
        self._backend.objects.delete_prefix(parts_prefix(batch_id))

    # -- which lines have ended ------------------------------------------------------------------

    def _look_ahead(self, batch: Batch, line: int) -> int:
        """The last line before the first one that has not ended."""
        size = _LOOKED_AT[0]
        while line < batch.line:
            lines = range(line + 1, min(line + size, batch.line) + 1)
            settled = self._backend.batches.outcomes(batch, lines)
            statuses = self._backend.jobs.statuses([line_job_id(batch.id, number) for number in lines])
            for number, outcome, status in zip(lines, settled, statuses, strict=True):
                if outcome is None and status is not None and not status.terminal:
                    return line
                if outcome is not None and outcome.startswith(">"):
                    line = int(outcome[1:])
                    break  # a run of lines that ask for nothing: look on behind it
                line = number
            size = min(2 * size, _LOOKED_AT[1])
        return line

    # -- one part --------------------------------------------------------------------------------

    def _write_part(self, batch: Batch, last: int) -> None:
        numbers = list(range(batch.written_line + 1, last + 1))
        # In this order: a job that is deleted in between leaves an outcome.
        records = self._backend.jobs.get_many([line_job_id(batch.id, number) for number in numbers])
        outcomes = self._backend.batches.outcomes(batch, numbers)
        texts: dict[Kind, list[bytes]] = {"output": [], "error": []}
        settled: list[int] = []
        unsuccessful: list[int] = []
        passed = 0
        for number, outcome, job in zip(numbers, outcomes, records, strict=True):
            if number <= passed:
                continue
            if outcome is not None:
                settled.append(number)
                if outcome.startswith(">"):
                    passed = int(outcome[1:])
                    continue
            kind, told = self._told(batch, number, outcome, job)
            if kind == "error" and "job_id" in told:
                unsuccessful.append(number)
            texts[kind].append(json.dumps(told, ensure_ascii=False).encode() + b"\n")
        last = max(last, passed)
        written: dict[Kind, Part | None] = {}
        for kind, lines in texts.items():
            written[kind] = self._store(batch, kind, f"{numbers[0]:08}-{last:08}", b"".join(lines))
        self._backend.batches.written(
            batch, last, written["output"], written["error"], settled=settled, unsuccessful=unsuccessful
        )

    def _store(self, batch: Batch, kind: Kind, lines: str, data: bytes) -> Part | None:
        if not data:
            return None
        part = Part(lines, len(data))
        self._backend.objects.put_bytes(part_key(batch.id, kind, part), data, CONTENT_TYPE)
        return part

    def _told(
        self, batch: Batch, number: int, outcome: str | None, job: Job | None
    ) -> tuple[Kind, JsonObject]:
        job_id = line_job_id(batch.id, number)
        told: JsonObject = {"id": f"batch_req_{job_id[4:]}", "custom_id": None, "line": number}
        if outcome is not None:
            return "error", told | json.loads(outcome) | {"response": None}
        told["job_id"] = job_id
        gone: JsonObject = {"code": ErrorCode.GONE.code, "message": "the job's result is gone"}
        if job is None:  # its record has run out
            return "error", told | {"response": None, "error": gone}
        line = job.spec.line or BatchLine(number)
        told["custom_id"] = line.custom_id
        if job.status is Status.SUCCEEDED:
            try:
                body = self._body(job, line)
            except StagewaveError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
                return "error", told | {"response": None, "error": gone}
            answer: JsonObject = {"status_code": 200, "request_id": job_id, "body": body}
            return "output", told | {"response": answer, "error": None}
        failure = job.error or {"code": "canceled", "message": "the job was canceled"}
        return "error", told | {"response": None, "error": failure}

    def _body(self, job: Job, line: BatchLine) -> JsonObject | str:
        if line.url in (JOBS, SPEECH):
            return job.public()
        wanted = TranscriptionRequest.model_validate(line.asked)
        return transcription_body(wanted, self._transcript(job, wanted), line.url == TRANSLATIONS)

    def _transcript(self, job: Job, wanted: TranscriptionRequest) -> JsonObject:
        """Its text stands in the record; what has times is read from the object store."""
        result = job.result or {}
        if wanted.response_format in ("json", "text"):
            return {"text": result.get("text"), "duration_s": job.usage.get("audio_in_s"), "segments": []}
        with self._backend.objects.open(str(result["transcript_key"])) as found:
            transcript: JsonObject = json.loads(b"".join(found.iter_chunks()))
        return transcript


def read_output(backend: Backend, batch: Batch, kind: Kind) -> Iterator[bytes]:
    """All that there is of a kind by now, in input order. Raises ``store_unavailable``."""
    sent = 0
    if not batch.status.terminal:
        parts = backend.batches.parts(batch.id, kind)
        try:
            for block in _part_blocks(backend.objects, batch.id, kind, parts):
                sent += len(block)
                yield block
            return
        except StagewaveError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
    # It has ended, perhaps just now: the parts are joined, and what was read of them is how that begins.
    size = backend.objects.size(joined_key(batch.id, kind)) or 0
    if sent < size:
        with backend.objects.open(joined_key(batch.id, kind), (sent, size)) as found:
            yield from found.iter_chunks()


def _part_blocks(objects: ObjectStore, batch_id: str, kind: Kind, parts: Sequence[Part]) -> Iterator[bytes]:
    for part in parts:
        with objects.open(part_key(batch_id, kind, part)) as found:
            yield from found.iter_chunks()


class _Joined(io.RawIOBase):
    """Blocks as a file to read."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = cast(memoryview, buffer)
        if not self._rest:
            self._rest = next(self._blocks, b"")
        size = min(len(room), len(self._rest))
        room[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
