"""``stagewave batch run``: a file of requests as one batch of the server, followed to its end."""

from __future__ import annotations

import asyncio
import hashlib
import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from stagewave.batch.bucket import Bucket, split_url
from stagewave.batch.failures import NAME
from stagewave.batch.outputs import output
from stagewave.batch.tally import Tally
from stagewave.client import AsyncClient
from stagewave.client.batches import BatchOptions
from stagewave.errors import NotFound, WrongInput
from stagewave.record import Batch, BatchLine
from workers.settings import Settings

_LOOK_S = 1.0
_KEYS = 100


class Requests:
    """The requests at a path or an ``s3://`` URL, and where what becomes of them goes: ``output.jsonl``,
    ``errors.jsonl`` and, of a file, ``failures.jsonl`` with the lines that failed, beside those of earlier
    files."""

    def __init__(self, source: str, out: Path, settings: Settings) -> None:
        """Reads the whole file once. Raises ``WrongInput`` when it is not there."""
        self.source: Path | str = source if source.startswith("s3://") else Path(source)
        self._out = out
        self._digest = _digest_of(self.source, settings)

    async def make(self, client: AsyncClient, options: BatchOptions) -> Batch:
        """The batch of these requests: an earlier run's, unless nothing more comes of that."""
        asked = json.dumps([self._digest, options], sort_keys=True)
        key = f"batch-{hashlib.sha256(asked.encode()).hexdigest()}"
        for number in range(1, _KEYS + 1):
            try:
                batch = await client.batch(self.source, idempotency_key=f"{key}-{number}", **options)
            except NotFound as error:
                if error.code != "gone":
                    raise
                continue
            if batch.status not in ("failed", "cancelled", "cancelling"):
                return batch
        raise WrongInput("no new batch could be made of these requests")

    async def follow(self, client: AsyncClient, batch: Batch, tally: Tally) -> Batch:
        """The batch once it has ended; meanwhile ``tally`` tells of it."""
        while True:
            counts = batch.counts
            tally.total = counts["total"] or None
            tally.done = counts["succeeded"]
            tally.failures = +Counter({"failed": counts["failed"], "canceled": counts["canceled"]})
            if batch.finished:
                return batch
            await asyncio.sleep(_LOOK_S)
            batch = await client.batches.get(batch.id)

    async def fetch(self, client: AsyncClient, batch: Batch, tally: Tally) -> None:
        """Write what became of the requests."""
        done: set[int] = set()
        failed: set[int] = set()
        by_code: Counter[str] = Counter()

        async def outcomes() -> AsyncIterator[BatchLine]:
            async for line in client.batches.output(batch.id):
                done.add(line.line)
                yield line

        async def errors() -> AsyncIterator[BatchLine]:
            async for line in client.batches.errors(batch.id):
                failed.add(line.line)
                by_code[str((line.error or {}).get("code", "error"))] += 1
                yield line

        await self._write("output.jsonl", outcomes())
        await self._write("errors.jsonl", errors())
        tally.failures = by_code
        if isinstance(self.source, Path):
            await asyncio.to_thread(self._keep, self.source, done, failed)

    async def _write(self, name: str, lines: AsyncIterator[BatchLine]) -> None:
        with output(self._out / name) as file:
            async for line in lines:
                file.write(json.dumps(line.record, ensure_ascii=False).encode() + b"\n")

    def _keep(self, source: Path, done: set[int], failed: set[int]) -> None:
        """Write down the lines that failed, after those that earlier batches have left and this one has not
        brought to an end."""
        path = self._out / NAME
        left = {_digest(line) for line in _lines_of(path) if line.strip()} if path.exists() else set()
        if left:
            for number, line in enumerate(_lines_of(source), 1):
                if number in done or number in failed:
                    left.discard(_digest(line))
        if not left and not failed:
            path.unlink(missing_ok=True)
            return
        with output(path) as file:
            if left:
                file.writelines(line + b"\n" for line in _lines_of(path) if _digest(line) in left)
            for number, line in enumerate(_lines_of(source), 1):
                if number in failed:
                    file.write(line + b"\n")


def _lines_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        if file.read(len(BOM_UTF8)) != BOM_UTF8:
            file.seek(0)
        for line in file:
            yield line.rstrip(b"\r\n")


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()


def _digest_of(source: Path | str, settings: Settings) -> str:
    if isinstance(source, Path):
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    bucket, key = split_url(source)
    found = Bucket(bucket, settings).find(key)
    if found is None:
        raise WrongInput("there is no object of that key")
    return f"{source} {found.tag}"
