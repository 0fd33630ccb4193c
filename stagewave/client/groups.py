"""``client.batches`` and ``client.voices`` of both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from stagewave.client import batches, voices
from stagewave.client.batches import BatchFilters, Lines
from stagewave.client.voices import VoiceFilters
from stagewave.record import Batch, BatchLine, Voice

if TYPE_CHECKING:
    from stagewave.client.async_client import AsyncClient
    from stagewave.client.sync_client import Client


class Batches:
    """What can be done with batches; ``client.batch`` makes one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, batch_id: str, *, wait_s: float = 0) -> Batch:
        """The record now, or as soon as the batch has ended, at the latest after ``wait_s``."""
        return self._client.run(batches.get(batch_id, wait_s))

    def wait(self, batch_id: str, *, timeout_s: float | None = None) -> Batch:
        """The record once the batch has ended; after ``timeout_s`` the record as it then is."""
        return self._client.run(batches.wait(batch_id, timeout_s))

    def list(self, **filters: Unpack[BatchFilters]) -> Iterator[Batch]:
        """All batches, newest first, fetched page by page."""
        return self._client.each(
            lambda after: batches.page({**filters, "after": after}), filters.get("after")
        )

    def cancel(self, batch_id: str) -> Batch:
        """Stop a batch; what is done stays."""
        return self._client.run(batches.cancel(batch_id))

    def resume(
        self,
        batch_id: str,
        *,
        only: Lines | None = None,
        idempotency_key: str | None = None,
    ) -> Batch:
        """A new batch of what failed in this one, of what never ended, or (None) of both."""
        return self._client.run(batches.resume(batch_id, only, idempotency_key))

    def output(self, batch_id: str) -> Iterator[BatchLine]:
        """The requests that succeeded, in the order of the input; so far, while the batch runs."""
        lines = self._client.lines(batches.lines(batch_id, "output"))
        return (line for text in lines if (line := batches.read_line(text)))

    def errors(self, batch_id: str) -> Iterator[BatchLine]:
        """The requests that failed, in the order of the input; so far, while the batch runs."""
        lines = self._client.lines(batches.lines(batch_id, "errors"))
        return (line for text in lines if (line := batches.read_line(text)))


class AsyncBatches:
    """``Batches``, for ``AsyncClient``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def get(self, batch_id: str, *, wait_s: float = 0) -> Batch:
        return await self._client.run(batches.get(batch_id, wait_s))

    async def wait(self, batch_id: str, *, timeout_s: float | None = None) -> Batch:
        return await self._client.run(batches.wait(batch_id, timeout_s))

    def list(self, **filters: Unpack[BatchFilters]) -> AsyncIterator[Batch]:
        return self._client.each(
            lambda after: batches.page({**filters, "after": after}), filters.get("after")
        )

    async def cancel(self, batch_id: str) -> Batch:
        return await self._client.run(batches.cancel(batch_id))

    async def resume(
        self,
        batch_id: str,
        *,
        only: Lines | None = None,
        idempotency_key: str | None = None,
    ) -> Batch:
        return await self._client.run(batches.resume(batch_id, only, idempotency_key))

    def output(self, batch_id: str) -> AsyncIterator[BatchLine]:
        lines = self._client.lines(batches.lines(batch_id, "output"))
        return (line async for text in lines if (line := batches.read_line(text)))

    def errors(self, batch_id: str) -> AsyncIterator[BatchLine]:
        lines = self._client.lines(batches.lines(batch_id, "errors"))
        return (line async for text in lines if (line := batches.read_line(text)))


class Voices:
    """The server's voices; a job names one by its ``name``. ``model`` is the one that speaks, where there
    are several."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str, recording: Path | bytes, *, model: str | None = None) -> Voice:
        """Make a voice of some seconds of somebody's speech. Jobs may name it at once; ``get`` tells how it
        went."""
        return self._client.run(voices.create(name, recording, model))

    def get(self, name: str, *, model: str | None = None) -> Voice:
        return self._client.run(voices.get(name, model))

    def list(self, **filters: Unpack[VoiceFilters]) -> Iterator[Voice]:
        """The server's own first, then those that clients made, newest first."""
        return self._client.each(
            lambda after: voices.page({**filters, "after": after}), filters.get("after")
        )

    def delete(self, name: str, *, model: str | None = None) -> None:
        self._client.run(voices.delete(name, model))


class AsyncVoices:
    """``Voices``, for ``AsyncClient``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(self, name: str, recording: Path | bytes, *, model: str | None = None) -> Voice:
        return await self._client.run(voices.create(name, recording, model))

    async def get(self, name: str, *, model: str | None = None) -> Voice:
        return await self._client.run(voices.get(name, model))

    def list(self, **filters: Unpack[VoiceFilters]) -> AsyncIterator[Voice]:
        return self._client.each(
            lambda after: voices.page({**filters, "after": after}), filters.get("after")
        )

    async def delete(self, name: str, *, model: str | None = None) -> None:
        await self._client.run(voices.delete(name, model))
