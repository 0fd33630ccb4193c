"""The client for programs with threads, or with one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from stagewave.client import batches, jobs
from stagewave.client.batches import BatchOptions, Requests
from stagewave.client.call import Call, Plan
from stagewave.client.following import Following
from stagewave.client.groups import Batches, Voices
from stagewave.client.http import QUEUED_S, SILENCE_S, answer_of, mapped_errors, request_of, settings_of
from stagewave.client.jobs import AudioFormat, JobFilters, JobOptions, JobType, TranscriptFormat
from stagewave.client.lines import Lines
from stagewave.client.patience import Patience, patiently
from stagewave.errors import ClientError
from stagewave.record import Batch, Event, Job, JsonObject, Page

T = TypeVar("T")


class Client:
    """Talks to one Stagewave server; safe to share between threads.

    A call that fails by what may pass (no connection, 429, 502, 503, 504) is made again for ``patience_s``,
    with growing pauses, and after as long as the server asks for. A POST that is made again never makes a
    second job. Every method raises ``Unreachable``, ``ApiError`` or its kin ``NotFound``.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 20.0,
    ) -> None:
        with mapped_errors(base_url):
            self._http = httpx.Client(**settings_of(base_url, api_key, timeout_s))
        self._timeout_s = timeout_s
        self._patience = Patience(patience_s)
        self.batches = Batches(self)
        self.voices = Voices(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(
        self,
        type: JobType,  # the API's own word
        *,
        text: str | None = None,
        audio: Path | bytes | str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Make a job: ``text`` to speak, or ``audio`` as a file (``Path``), bytes, or a URL (``str``).

        The same ``idempotency_key`` makes one job, however often it is sent, for a day; without it, each
        ``submit`` makes one.
        """
        return self.run(jobs.submit(type, text, audio, idempotency_key, options))

    def get(self, job_id: str, *, wait_s: float = 0) -> Job:
        """The record now, or as soon as the job has ended, at the latest after ``wait_s``."""
        return self.run(jobs.get(job_id, wait_s))

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """The record once the job has ended; after ``timeout_s`` the record as it then is."""
        return self.run(jobs.wait(job_id, timeout_s))

    def jobs(self, **filters: Unpack[JobFilters]) -> Iterator[Job]:
        """All jobs, newest first, fetched page by page. ``limit`` is the size of a page."""
        return self.each(lambda after: jobs.page({**filters, "after": after}), filters.get("after"))

    def jobs_page(self, **filters: Unpack[JobFilters]) -> Page[Job]:
        """One page of them."""
        return self.run(jobs.page(filters))

    def cancel(self, job_id: str) -> Job:
        """Stop a job; canceling twice is no error."""
        return self.run(jobs.cancel(job_id))

    def delete(self, job_id: str) -> None:
        """Remove a job, its audio and its transcript; deleting twice is no error."""
        self.run(jobs.delete(job_id))

    def events(self, job_id: str, *, after: str | None = None) -> Iterator[Event]:
        """What happens to the job, from its start (or after an event's id) to its end."""
        following = Following(job_id, after, self._patience)
        while (call := following.next_call()) is not None:
            try:
                with self._stream(call, SILENCE_S) as answer:
                    following.answered(answer.status_code)
                    for piece in answer.iter_bytes():
                        yield from following.feed(piece)
                following.ended()
            except ClientError as error:
                following.ended(error)

    def listen(
        self, job_id: str, *, format: AudioFormat | None = None
    ) -> Iterator[bytes]:  # the API's word
        """The job's audio, live while it is made, else the finished file. Raises ``Unreachable`` when it
        breaks off, as when the job fails."""
        return self._received(jobs.listening(job_id, format), QUEUED_S)

    def audio(self, job_id: str, *, format: AudioFormat | None = None) -> bytes:  # the API's own word
        """The finished audio, whole, once the job has ended."""
        return self.run(jobs.audio(job_id, format))

    def transcript(self, job_id: str, *, format: TranscriptFormat = "text") -> bytes:  # the API's own word
        """The transcript, once the job has ended: ``text``, ``json``, ``srt`` or ``vtt``, in UTF-8."""
        return self.run(jobs.transcript(job_id, format))

    def batch(
        self, requests: Requests, *, idempotency_key: str | None = None, **options: Unpack[BatchOptions]
    ) -> Batch:
        """Make a batch of the requests in a JSONL file (``Path``, or ``str`` for an ``s3://`` URL), or of
        requests as they come from an iterable. ``client.batches`` has what can be done with it."""
        with batches.as_file(requests) as source:
            return self.run(batches.create(source, idempotency_key, options))

    def ready(self) -> JsonObject:
        """What ``/readyz`` says now: ``status`` is ``ready`` or ``not_ready``, and ``checks`` says why."""
        with mapped_errors(self._http.base_url):
            return answer_of(self._http.get("/readyz")).json()

    # -- how it is done; the rest of this package asks for it too ----------------------------------

    def run(self, plan: Plan[T]) -> T:
        """Make the calls of a plan; its result."""
        plan = patiently(plan, self._patience)
        try:
            call = next(plan)
            while True:
                time.sleep(call.after_s)
                timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + call.wait_s)
                try:
                    with mapped_errors(self._http.base_url), request_of(call, timeout) as request:
                        answer = answer_of(self._http.request(**request))
                except ClientError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    def each(self, plan_of: Callable[[str | None], Plan[Page[T]]], after: str | None) -> Iterator[T]:
        """The items of all pages."""
        while True:
            page = self.run(plan_of(after))
            yield from page.items
            after = page.next_cursor
            if after is None:
                return

    def lines(self, call: Call) -> Iterator[str]:
        """The lines of an answer, as they come."""
        lines = Lines()
        for piece in self._received(call, SILENCE_S):
            yield from lines.feed(piece)
        yield from lines.end()

    def _received(self, call: Call, silence_s: float) -> Iterator[bytes]:
        """The bytes of an answer, as they come; until the first has come, it is asked for again."""
        tries, began = self._patience.tries(), False
        while True:
            try:
                with self._stream(call, silence_s) as answer:
                    for piece in answer.iter_bytes():
                        began = True
                        yield piece
                return
            except ClientError as error:
                if began:
                    raise
                call = replace(call, after_s=tries.pause_s(error))

    @contextmanager
    def _stream(self, call: Call, silence_s: float) -> Iterator[httpx.Response]:
        time.sleep(call.after_s)
        timeout = httpx.Timeout(self._timeout_s, read=silence_s)
        with (
            mapped_errors(self._http.base_url),
            request_of(call, timeout) as request,
            self._http.stream(**request) as answer,
        ):
            if not answer.is_success:
                answer.read()
                answer_of(answer).check()
            yield answer
