"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from stagewave.client import batches, jobs
from stagewave.client.batches import BatchOptions, Requests
from stagewave.client.call import Call, Plan
from stagewave.client.following import Following
from stagewave.client.groups import AsyncBatches, AsyncVoices
from stagewave.client.http import QUEUED_S, SILENCE_S, answer_of, mapped_errors, request_of, settings_of
from stagewave.client.jobs import AudioFormat, JobFilters, JobOptions, JobType, TranscriptFormat
from stagewave.client.lines import Lines
from stagewave.client.patience import Patience, patiently
from stagewave.errors import ClientError
from stagewave.record import Batch, Event, Job, JsonObject, Page

T = TypeVar("T")


class AsyncClient:
    """``Client``, for asyncio: the same methods with the same promises, to be awaited or iterated over with
    ``async for``. Files are read in small blocks between other work."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 20.0,
    ) -> None:
        with mapped_errors(base_url):
            self._http = httpx.AsyncClient(**settings_of(base_url, api_key, timeout_s))
        self._timeout_s = timeout_s
        self._patience = Patience(patience_s)
        self.batches = AsyncBatches(self)
        self.voices = AsyncVoices(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def submit(
        self,
        type: JobType,  # the API's own word
        *,
        text: str | None = None,
        audio: Path | bytes | str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        return await self.run(jobs.submit(type, text, audio, idempotency_key, options))

    async def get(self, job_id: str, *, wait_s: float = 0) -> Job:
        return await self.run(jobs.get(job_id, wait_s))

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        return await self.run(jobs.wait(job_id, timeout_s))

    def jobs(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Job]:
        return self.each(lambda after: jobs.page({**filters, "after": after}), filters.get("after"))

    async def jobs_page(self, **filters: Unpack[JobFilters]) -> Page[Job]:
        return await self.run(jobs.page(filters))

    async def cancel(self, job_id: str) -> Job:
        return await self.run(jobs.cancel(job_id))

    async def delete(self, job_id: str) -> None:
        await self.run(jobs.delete(job_id))

    async def events(self, job_id: str, *, after: str | None = None) -> AsyncIterator[Event]:
        following = Following(job_id, after, self._patience)
        while (call := following.next_call()) is not None:
            try:
                async with self._stream(call, SILENCE_S) as answer:
                    following.answered(answer.status_code)
                    async for piece in answer.aiter_bytes():
                        for event in following.feed(piece):
                            yield event
                following.ended()
            except ClientError as error:
                following.ended(error)

    def listen(
        self,
        job_id: str,
        *,
        format: AudioFormat | None = None,  # the API's own word
    ) -> AsyncIterator[bytes]:
        return self._received(jobs.listening(job_id, format), QUEUED_S)

    async def audio(self, job_id: str, *, format: AudioFormat | None = None) -> bytes:  # the API's own word
        return await self.run(jobs.audio(job_id, format))

    async def transcript(
        self,
        job_id: str,
        *,
        format: TranscriptFormat = "text",  # the API's own word
    ) -> bytes:
        return await self.run(jobs.transcript(job_id, format))

    async def batch(
        self, requests: Requests, *, idempotency_key: str | None = None, **options: Unpack[BatchOptions]
    ) -> Batch:
        with batches.as_file(requests) as source:
            return await self.run(batches.create(source, idempotency_key, options))

    async def ready(self) -> JsonObject:
        with mapped_errors(self._http.base_url):
            return answer_of(await self._http.get("/readyz")).json()

    # -- how it is done; the rest of this package asks for it too ----------------------------------

    async def run(self, plan: Plan[T]) -> T:
        """Make the calls of a plan; its result."""
        plan = patiently(plan, self._patience)
        try:
            call = next(plan)
            while True:
                await asyncio.sleep(call.after_s)
                timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + call.wait_s)
                try:
                    with mapped_errors(self._http.base_url), request_of(call, timeout) as request:
                        answer = answer_of(await self._http.request(**request))
                except ClientError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    async def each(
        self, plan_of: Callable[[str | None], Plan[Page[T]]], after: str | None
    ) -> AsyncIterator[T]:
        """The items of all pages."""
        while True:
            page = await self.run(plan_of(after))
            for item in page.items:
                yield item
            after = page.next_cursor
            if after is None:
                return

    async def lines(self, call: Call) -> AsyncIterator[str]:
        """The lines of an answer, as they come."""
        lines = Lines()
        async for piece in self._received(call, SILENCE_S):
            for line in lines.feed(piece):
                yield line
        for line in lines.end():
            yield line

    async def _received(self, call: Call, silence_s: float) -> AsyncIterator[bytes]:
        """The bytes of an answer, as they come; until the first has come, it is asked for again."""
        tries, began = self._patience.tries(), False
        while True:
            try:
                async with self._stream(call, silence_s) as answer:
                    async for piece in answer.aiter_bytes():
                        began = True
                        yield piece
                return
            except ClientError as error:
                if began:
                    raise
                call = replace(call, after_s=tries.pause_s(error))

    @asynccontextmanager
    async def _stream(self, call: Call, silence_s: float) -> AsyncIterator[httpx.Response]:
        await asyncio.sleep(call.after_s)
        timeout = httpx.Timeout(self._timeout_s, read=silence_s)
        with mapped_errors(self._http.base_url), request_of(call, timeout) as request:
            async with self._http.stream(**request) as answer:
                if not answer.is_success:
                    await answer.aread()
                    answer_of(answer).check()
                yield answer
