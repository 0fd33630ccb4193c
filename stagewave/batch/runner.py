"""Running all items through a window of jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator

from stagewave.batch.display import Display
from stagewave.batch.failures import Failures
from stagewave.batch.item import Failure, Found, Item, ItemFailed, PassedOver
from stagewave.batch.tally import Tally
from stagewave.batch.work import Work
from stagewave.client import AsyncClient


class Runner:
    """Keeps up to ``at_once`` items under way, and counts. What concerns one item is one of ``failures``;
    what concerns all of them (no server, no room on the disk, a wrong input) is raised, and the next run
    goes on where this one ended."""

    def __init__(
        self, work: Work, items: Iterable[Found], tally: Tally, failures: Failures, *, overwrite: bool
    ) -> None:
        """``items`` is iterated over twice, once only to count."""
        self._work = work
        self._items = items
        self._tally = tally
        self._failures = failures
        self._overwrite = overwrite
        self._display: Display | None = None

    async def run(self, client: AsyncClient, at_once: int, display: Display) -> None:
        self._display = display
        # Another walk, beside the one that works: counted at once, held never.
        threading.Thread(target=self._count, daemon=True).start()
        feed = _Feed(iter(self._items))
        try:
            async with display.shown(), asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(self._take(client, feed))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _take(self, client: AsyncClient, feed: _Feed) -> None:
        while (found := await feed.next()) is not None:
            if isinstance(found, PassedOver):
                self._tally.passed_over += 1
                self._failures.settle(found)
            elif isinstance(found, Failure):
                self._fail(found)
            elif not self._overwrite and found.output.exists():
                self._tally.skipped += 1
                self._failures.settle(found)
            else:
                await self._do(client, found)

    async def _do(self, client: AsyncClient, item: Item) -> None:
        try:
            job = await self._work.do(client, item)
        except ItemFailed as failed:
            self._fail(Failure(item.source, failed.code, failed.message, item, failed.retryable))
            return
        self._failures.settle(item)
        self._tally.done += 1
        self._tally.audio_s += job.usage.get("audio_in_s") or job.usage.get("audio_out_s") or 0.0

    def _fail(self, failure: Failure) -> None:
        self._tally.failures[failure.code] += 1
        self._failures.add(failure)
        if self._display is not None:
            self._display.failed(failure)

    def _count(self) -> None:
        try:
            total = sum(not isinstance(found, PassedOver) for found in self._items)
        except Exception:  # whatever it is, the walk that works meets it too, and says so
            return
        self._tally.total = total


class _Feed:
    """Items for many takers, one at a time; looking for the next one blocks, so a thread does it."""

    def __init__(self, items: Iterator[Found]) -> None:
        self._items = items
        self._lock = asyncio.Lock()

    async def next(self) -> Found | None:
        async with self._lock:
            return await asyncio.to_thread(next, self._items, None)
