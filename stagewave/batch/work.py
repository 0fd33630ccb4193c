"""One item from its request to its output, with as many jobs as that takes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from stagewave.batch.item import Item, ItemFailed, shown
from stagewave.batch.outputs import output
from stagewave.client import AsyncClient
from stagewave.client.call import given
from stagewave.client.jobs import JobOptions, JobType, TranscriptFormat, submit
from stagewave.client.patience import passes
from stagewave.errors import ApiError, NotFound, Unreachable
from stagewave.record import Job

TRIES = 3
"""Jobs of one run for one item: those after the first when the one before failed by what may pass."""
_PAUSE_S = 1.0
_KEYS = 100
"""Keys to try for one item; each run in which it fails takes up to ``TRIES`` of them, for a day."""
_FOR_ALL = (401, 403, 404, 405)
"""No key, or no Stagewave there."""

Save = Callable[[AsyncClient, Job, Path], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with each item: a job of this type with these options, whose result ``save`` fetches."""

    type: JobType
    options: JobOptions
    save: Save

    async def do(self, client: AsyncClient, item: Item) -> Job:
        """The job that made the output. Raises ``ItemFailed``, and for what concerns all items
        ``ClientError`` or ``DiskFull``."""
        made = 0
        key = await asyncio.to_thread(self._key, item)
        for number in range(1, _KEYS + 1):
            job = await self._submit(client, item, f"{key}-{number}")
            if job is None:
                continue
            is_old = job.finished  # of a run before this one: a fresh job is queued
            try:
                job = await client.wait(job.id)
                if job.succeeded:
                    await self.save(client, job, item.output)
                    return job
                failure = _failure_of_job(job)
            except NotFound:
                failure = ItemFailed("gone", "the job was deleted", retryable=True)
            if is_old:
                continue  # whoever runs it again wants it tried again
            made += 1
            if made == TRIES or not failure.retryable:
                raise failure
            await asyncio.sleep(_PAUSE_S * made)
        raise ItemFailed("internal", "no new job could be made of it")

    async def _submit(self, client: AsyncClient, item: Item, key: str) -> Job | None:
        """None when nothing can come of this key: its job was deleted, or a newer server reads more into
        the same request."""
        options: JobOptions = {**self.options, **item.fields}  # type: ignore[typeddict-item]  # the server checks what a line sets
        try:
            # Not by the client's own ``submit``, which has keywords that are no fields.
            return await client.run(submit(self.type, None, item.audio, key, options))
        except OSError as error:
            raise _unreadable(error) from error
        except ApiError as error:
            if error.code in ("gone", "idempotency_mismatch"):
                return None
            raise _failure_of(error) from error

    def _key(self, item: Item) -> str:
        """The same for the same content and options, whatever its name; reads the whole file."""
        asked = given({"type": self.type, **self.options, **item.fields})
        if isinstance(item.audio, Path):
            try:
                with item.audio.open("rb") as file:
                    asked["audio"] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise _unreadable(error) from error
        else:
            asked["audio"] = [item.audio, item.tag]
        canonical = json.dumps(asked, sort_keys=True)
        return f"batch-{hashlib.sha256(canonical.encode()).hexdigest()}"


def save_transcript(form: TranscriptFormat) -> Save:
    async def save(client: AsyncClient, job: Job, path: Path) -> None:
        transcript = await client.transcript(job.id, format=form)
        await asyncio.to_thread(_write, path, transcript)

    return save


async def save_audio(client: AsyncClient, job: Job, path: Path) -> None:
    """The finished audio, block by block; from its beginning again should it break off."""
    for left in reversed(range(TRIES)):
        try:
            with output(path) as file:
                async for piece in client.listen(job.id):
                    file.write(piece)
            return
        except Unreachable:
            if not left:
                raise


def _write(path: Path, content: bytes) -> None:
    with output(path) as file:
        file.write(content)


def _unreadable(error: OSError) -> ItemFailed:
    return ItemFailed("unreadable", shown(error.strerror or type(error).__name__))


def _failure_of(error: ApiError) -> Exception:
    """What the server refused for this item alone; the error itself when it would refuse all."""
    if passes(error) or error.status in _FOR_ALL or error.code == "not_stagewave":
        return error
    return ItemFailed(error.code, str(error), retryable=error.status >= 500)


def _failure_of_job(job: Job) -> ItemFailed:
    if job.error is None:
        return ItemFailed("canceled", "somebody canceled the job", retryable=False)
    return ItemFailed(job.error["code"], job.error["message"], retryable=job.error["retryable"])
