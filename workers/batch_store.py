"""The records of batches, and every move of one: one script each, so it happens whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.batch import Batch, BatchSpec, BatchStatus
from workers.broker import Scripts, broker_errors, dumped, hash_fields, text
from workers.file_store import StoredFile
from workers.id_index import IdIndex
from workers.idempotency import Idempotency, key_taken
from workers.job import JsonObject
from workers.settings import Settings

Kind = Literal["output", "error"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a batch's output or errors in the store: the outcomes of ``lines`` ("first-last")."""

    lines: str
    size_bytes: int

    @classmethod
    def parse(cls, text: str) -> Part:
        lines, _, size = text.partition(":")
        return cls(lines, int(size))

    def __str__(self) -> str:
        return f"{self.lines}:{self.size_bytes}"


class BatchStore:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away or full."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._scripts = Scripts(client)
        self._retention_ms = int(settings.job_retention_s * 1000)
        self._index = IdIndex(client, keys.CONTROL_PREFIXES["batches"], keys.batch)

    # -- what clients do -------------------------------------------------------------------------

    def create(
        self, batch_id: str, spec: BatchSpec, input_bytes: int, *, idempotency: Idempotency | None = None
    ) -> tuple[Batch, bool]:
        """Make the record. False: an earlier batch stands under this key.

        Raises as ``under``; of the batch that it resumes, ``not_found``, and ``not_ready`` while that has
        not ended.
        """
        hook = spec.webhook
        answer = cast(
            list[object],
            self._scripts.run(
                "batch_create",
                args=(
                    batch_id,
                    idempotency.digest("batch") if idempotency else "",
                    idempotency.fingerprint if idempotency else "",
                    int(self._settings.idempotency_ttl_s * 1000),
                    spec.to_json(),
                    input_bytes,
                    spec.input_file_id or "",
                    spec.resumes or "",
                    spec.only or "",
                    json.dumps(asdict(hook)) if hook else "",
                    f",{','.join(hook.events)}," if hook else "",
                ),
            ),
        )
        match text(answer[0]):
            case "mismatch":
                raise key_taken()
            case "missing":
                raise _no_such_batch()
            case "going":
                raise StagewaveError(ErrorCode.NOT_READY, "the batch has not ended yet")
            case "known":
                known_id = text(answer[1])
                return self._made_before(known_id), known_id == batch_id
        return self.get(batch_id), True

    def under(self, idempotency: Idempotency | None) -> Batch | None:
        """The batch that an earlier request made under this key. Raises ``idempotency_mismatch`` when that
        was another request, and ``gone`` when the batch's record has run out."""
        if idempotency is None:
            return None
        with broker_errors():
            known_id, fingerprint = cast(
                list[bytes | None],
                self._client.hmget(
                    keys.idempotency(idempotency.digest("batch")), ["batch_id", "fingerprint"]
                ),
            )
        if known_id is None:
            return None
        if fingerprint != idempotency.fingerprint.encode():
            raise key_taken()
        return self._made_before(text(known_id))

    def get(self, batch_id: str) -> Batch:
        """Raises ``not_found``."""
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.batch(batch_id)))
        if b"spec" not in record:
            raise _no_such_batch()
        return Batch.from_hash(hash_fields(record))

    def page(self, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        """Newest first, and whether there are more."""
        found: list[Batch] = []
        cursor = after
        while True:
            ids = self._index.ids(limit + 1, cursor)
            for batch_id in ids:
                if len(found) == limit:
                    return found, True
                try:
                    found.append(self.get(batch_id))
                except StagewaveError as error:
                    if error.code is not ErrorCode.NOT_FOUND:
                        raise
            if len(ids) <= limit:
                return found, False
            cursor = ids[-1]

    def cancel(self, batch_id: str, errors: Sequence[JsonObject] = ()) -> Batch:
        """Let nothing new begin, and end what runs; the feeder does the rest. With ``errors`` it will have
        failed. One that is being put together ends as it would have. Raises ``not_found``, and
        ``job_finished`` when it ended before."""
        fields = ("errors", dumped(list(errors))) if errors else ()
        before, _ = self._move(batch_id, ("validating", "in_progress"), "cancelling", *fields)
        if BatchStatus(before).terminal:
            raise StagewaveError(ErrorCode.JOB_FINISHED, f"the batch has already {_ENDED[before]}")
        return self.get(batch_id)

    # -- what the feeder does --------------------------------------------------------------------

    def going(self) -> list[Batch]:
        """Those that have not ended, oldest first."""
        with broker_errors():
            ids = cast(list[bytes], self._client.zrange(keys.CONTROL_PREFIXES["batches_going"], 0, -1))
            pipe = self._client.pipeline(transaction=False)
            for batch_id in ids:
                pipe.hgetall(keys.batch(text(batch_id)))
            records = cast(list[dict[bytes, bytes]], pipe.execute() if ids else [])
        return [Batch.from_hash(hash_fields(record)) for record in records if b"spec" in record]

    def begin(self, batch_id: str, total: int) -> None:
        self._move(batch_id, ("validating",), "in_progress", "total", total)

    def finalize(self, batch_id: str) -> None:
        self._move(batch_id, ("in_progress",), "finalizing")

    def feed(
        self, batch: Batch, lines: Sequence[JsonObject], *, line: int, offset: int, read_all: bool
    ) -> list[str] | None:
        """Make the jobs of the next ``lines`` (``lua/batch_feed.lua`` has their form) and move on to
        ``line`` and ``offset``; the pools to ring, one entry a job. None: somebody else was there first."""
        answer = self._scripts.run(
            "batch_feed", args=(batch.id, batch.line, line, offset, int(read_all), dumped(lines))
        )
        return None if answer is None else [text(pool) for pool in cast(list[bytes], answer)]

    def written(
        self,
        batch: Batch,
        line: int,
        output: Part | None,
        error: Part | None,
        *,
        settled: Sequence[int],
        unsuccessful: Sequence[int],
    ) -> bool:
        """The outcomes up to ``line`` are stored in these parts; what was remembered of ``settled`` lines
        can go, and ``unsuccessful`` ones had a job and stand in the errors. False: somebody else was there
        first."""
        args = (batch.id, batch.written_line, line, output or "", error or "")
        lists = (dumped(list(settled)), dumped(list(unsuccessful)))
        return self._scripts.run("batch_written", args=(*map(str, args), *lists)) == 1

    def end(
        self,
        batch: Batch,
        to: BatchStatus,
        *,
        output: StoredFile | None = None,
        error: StoredFile | None = None,
        errors: Sequence[JsonObject] = (),
    ) -> bool:
        """Into the last status, with the files that it leaves. False when it has gone on meanwhile."""
        files: list[object] = []
        for file in (output, error):
            files += [file.id, file.key, file.bytes, file.filename] if file else ["", "", 0, ""]
        found = dumped(list(errors)) if errors else ""
        args = (batch.id, batch.status.value, to.value, self._retention_ms, found)
        return self._scripts.run("batch_end", args=(*args, batch.spec.input_file_id or "", *files)) == 1

    def set_rate(self, batch_id: str, per_s: float) -> None:
        with broker_errors():
            self._client.hset(keys.batch(batch_id), "rate_per_s", f"{per_s:.4f}")

    def chosen(self, batch: Batch) -> Chosen:
        with broker_errors():
            name = "chosen" if batch.spec.only == "failed" else "passed"
            bits = cast(bytes | None, self._client.get(keys.batch(batch.id, name)))
        if batch.spec.resumes is None:
            return Chosen(b"", listed=False)
        return Chosen(bits or b"", listed=name == "chosen")

    def outcomes(self, batch: Batch, lines: Sequence[int]) -> list[str | None]:
        """Of each of ``lines``: the error of one without a job, or whose job was deleted; ``>last`` of a
        run that asks for none."""
        with broker_errors():
            found = self._client.hmget(keys.batch(batch.id, "lines"), [str(line) for line in lines])
        return [text(item) if item is not None else None for item in cast(list[bytes | None], found)]

    def parts(self, batch_id: str, kind: Kind) -> list[Part]:
        with broker_errors():
            found = self._client.lrange(keys.batch(batch_id, kind), 0, -1)
        return [Part.parse(text(item)) for item in cast(list[bytes], found)]

    def forget_expired(self) -> int:
        """Take ids whose records have run out from the list."""
        return self._index.forget_expired()

    # -- inside ----------------------------------------------------------------------------------

    def _made_before(self, batch_id: str) -> Batch:
        try:
            return self.get(batch_id)
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:  # a key outlives the batch that was made under it
                raise StagewaveError(ErrorCode.GONE, "the batch made under this key is gone") from None
            raise

    def _move(self, batch_id: str, before: Sequence[str], after: str, *fields: object) -> tuple[str, str]:
        args = (batch_id, f",{','.join(before)},", after, *fields)
        answer = cast(list[object], self._scripts.run("batch_move", args=args))
        if not answer:
            raise _no_such_batch()
        return text(answer[0]), text(answer[1])


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which lines a batch takes: those whose bit is set when ``listed``, else those whose bit is not."""

    bits: bytes
    listed: bool

    def __contains__(self, line: int) -> bool:
        at = line >> 3
        there = at < len(self.bits) and bool(self.bits[at] >> (7 - (line & 7)) & 1)
        return there == self.listed


_ENDED = {"completed": "been completed", "failed": "failed", "cancelled": "been cancelled"}


def _no_such_batch() -> StagewaveError:
    return StagewaveError(ErrorCode.NOT_FOUND, "there is no such batch")
