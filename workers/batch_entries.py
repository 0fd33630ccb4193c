"""The next lines of a batch, as jobs to be made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.backend import Backend
from workers.batch import Batch, line_job_id
from workers.batch_lines import LineReader
from workers.batch_request import LineJob, LineRefused, LineRules
from workers.batch_store import Chosen
from workers.broker import dumped
from workers.faults import InvalidRequest
from workers.input_audio import SentBytes
from workers.job import AudioSource, JsonObject
from workers.results import input_key

_PASSED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Entries:
    """``lines`` as ``lua/batch_feed.lua`` has them, how far the file has been read with them, and if that
    is its end."""

    lines: list[JsonObject]
    line: int
    offset: int
    read_all: bool


class BatchEntries:
    """Of all batches. Each is read on where it was, as long as its record says so too."""

    def __init__(self, backend: Backend, deploys: Sequence[DeployConfig]) -> None:
        self._backend = backend
        self._rules = LineRules(backend, deploys)
        self._readers: dict[str, LineReader] = {}
        self._chosen: dict[str, Chosen] = {}

    def read(self, batch: Batch, room: int) -> Entries:
        """Up to ``room`` jobs. Raises ``StagewaveError`` when the file is gone, or was changed."""
        reader = self._readers.get(batch.id)
        if reader is None or reader.line != batch.line:
            reader = self._readers[batch.id] = self.reader_at(batch, batch.line, batch.offset)
        if batch.id not in self._chosen:
            self._chosen[batch.id] = self._backend.batches.chosen(batch)
        chosen = self._chosen[batch.id]
        found: list[JsonObject] = []
        lengths: list[tuple[int, JsonObject]] = []
        passed = 0
        while len(lengths) < room and passed < _PASSED_AT_ONCE and (line := reader.peek()) is not None:
            if line.blank or line.number not in chosen:
                passed += 1
                if found and found[-1].get("to") == line.number - 1:
                    found[-1]["to"] = line.number
                else:
                    found.append({"line": line.number, "to": line.number})
            else:
                entry, length = self._entry(batch, line.number, line.data)
                found.append(entry)
                lengths.append((length, entry))
            reader.go_on()
        # Those of like length stand beside each other in the queue: a batch of the engine is as long as its
        # longest.
        lengths.sort(key=lambda item: item[0])
        for rank, (_, entry) in enumerate(lengths):
            if isinstance(fields := entry.get("fields"), list):
                fields += ["rank", str(rank)]
        return Entries(found, reader.line, reader.offset, reader.peek() is None)

    def reader_at(self, batch: Batch, line: int, offset: int) -> LineReader:
        """A reader of its file from there on."""
        size = batch.input_bytes
        return LineReader(self._backend.objects, batch.spec.input_key, size, line=line, offset=offset)

    def forget(self, batch_id: str) -> None:
        """What was read ahead; the next step reads it again."""
        self._readers.pop(batch_id, None)
        self._chosen.pop(batch_id, None)

    def forget_all(self) -> None:
        self._readers.clear()
        self._chosen.clear()

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


def _refusal(custom_id: str | None, error: StagewaveError) -> str:
    return dumped({"custom_id": custom_id, "error": fault_of(error)})


def fault_of(error: StagewaveError) -> JsonObject:
    """As the errors of a batch have it."""
    fault: JsonObject = {"code": error.code.code, "message": error.message}
    if error.field is not None:
        fault["field"] = error.field
    if isinstance(error, InvalidRequest):
        fault["errors"] = [{"field": f.field, "detail": f.message} for f in error.faults]
    return fault
