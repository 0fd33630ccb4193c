"""A client of the HTTP API, for the ``stagewave`` command and for Python programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

from stagewave.errors import ApiError, ClientError, NotFound, Unreachable
from stagewave.record import TERMINAL, Event, Job, JsonObject
from stagewave.sse import read_events

POLL_S = 25.0
"""One long poll; under the 30 s after which many proxies give up."""
SILENCE_S = 60.0
"""A stream of events or audio that is silent for longer is broken: heartbeats come every 15 s."""
PATIENCE_S = 20.0
"""How long ``wait`` and ``events`` bear a server that restarts."""


class Client:
    """Talks to one Stagewave server; safe to share between threads.

    Every method raises ``Unreachable``, ``ApiError`` or its kin ``NotFound``.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        headers = {"User-Agent": "stagewave-client"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=timeout_s)
        self._timeout_s = timeout_s

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
        type: str,  # the API's own word
        *,
        text: str | None = None,
        audio: Path | str | None = None,
        idempotency_key: str | None = None,
        **options: object,
    ) -> Job:
        """Make a job: ``text`` to speak, or ``audio`` as a file (``Path``) or a URL (``str``).

        ``options`` are the other fields of ``POST /v1/jobs``; those that are None are left out. The same
        ``idempotency_key`` makes one job, however often it is sent.
        """
        fields: JsonObject = {"type": type, "text": text, **options}
        if isinstance(audio, str):
            fields["audio_url"] = audio
        fields = {name: value for name, value in fields.items() if value is not None}
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        if isinstance(audio, Path):
            with audio.open("rb") as file:
                form = {name: _form_value(value) for name, value in fields.items()}
                return Job(
                    self._call(
                        "POST", "/v1/jobs", headers=headers, data=form, files={"file": (audio.name, file)}
                    )
                )
        return Job(self._call("POST", "/v1/jobs", headers=headers, json=fields))

    def get(self, job_id: str, *, wait_s: float = 0) -> Job:
        """The record now, or as soon as the job has ended, at the latest after ``wait_s``."""
        params = {"wait": str(wait_s)} if wait_s else {}
        return Job(self._call("GET", _path(job_id), params=params, timeout=self._timeout_s + wait_s))

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """The record once the job has ended; after ``timeout_s`` the record as it then is."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        down_since: float | None = None
        while True:
            left = POLL_S if end is None else min(POLL_S, max(0.0, end - time.monotonic()))
            try:
                job = self.get(job_id, wait_s=left)
            except ClientError as error:
                down_since = _bear(error, down_since)
                continue
            down_since = None
            if job.finished or (end is not None and time.monotonic() >= end):
                return job

    def jobs(
        self,
        *,
        status: str | None = None,
        type: str | None = None,  # the API's own word
        batch: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[list[Job], str | None]:
        """One page, newest first, and the cursor of the next page."""
        asked = {"status": status, "type": type, "batch": batch, "after": after, "limit": limit}
        params = {name: str(value) for name, value in asked.items() if value is not None}
        page = self._call("GET", "/v1/jobs", params=params)
        return [Job(record) for record in page["data"]], page["next_cursor"]

    def cancel(self, job_id: str) -> Job:
        return Job(self._call("POST", f"{_path(job_id)}/cancel"))

    def delete(self, job_id: str) -> None:
        self._call("DELETE", _path(job_id))

    def events(self, job_id: str, *, after: str | None = None) -> Iterator[Event]:
        """What happens to the job, from its start (or after an event's id) to its end."""
        down_since: float | None = None
        while True:
            headers = {"Last-Event-ID": after} if after else {}
            try:
                with self._stream(f"{_path(job_id)}/events", headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    for event in read_events(answer.iter_lines()):
                        down_since = None
                        after = event.id or after
                        yield event
                        if event.name in TERMINAL:
                            return
                # The server ended the stream early, as when it restarts.
                down_since = _bear(Unreachable("the event stream broke"), down_since)
            except ClientError as error:
                down_since = _bear(error, down_since)

    def audio(self, job_id: str, *, format: str | None = None) -> Iterator[bytes]:  # the API's own word
        """The job's audio: live while it is made, else the finished file."""
        params = {"format": format} if format else {}
        with self._stream(f"{_path(job_id)}/audio", params=params) as answer:
            yield from answer.iter_bytes()

    def transcript(self, job_id: str, *, format: str = "text") -> bytes:  # the API's own word
        """The transcript as ``text``, ``json``, ``srt`` or ``vtt``."""
        with self._stream(f"{_path(job_id)}/transcript", params={"format": format}) as answer:
            return answer.read()

    def ready(self) -> JsonObject:
        """What ``/readyz`` says: ``status`` is ``ready`` or ``not_ready``, and ``checks`` says why."""
        try:
            return _json(self._http.get("/readyz"))
        except httpx.HTTPError as error:
            raise _unreachable(self._http, error) from error

    def _call(
        self,
        method: str,
        path: str,
        **request: Any,  # noqa: ANN401  # the arguments of httpx, which differ in type
    ) -> JsonObject:
        try:
            answer = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise _unreachable(self._http, error) from error
        _check(answer)
        return _json(answer) if answer.status_code != 204 else {}

    @contextmanager
    def _stream(
        self,
        path: str,
        **request: Any,  # noqa: ANN401  # the arguments of httpx, which differ in type
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(self._timeout_s, read=SILENCE_S)
        try:
            with self._http.stream("GET", path, timeout=timeout, **request) as answer:
                if answer.is_error:
                    answer.read()
                _check(answer)
                yield answer
        except httpx.HTTPError as error:
            raise _unreachable(self._http, error) from error


def _path(job_id: str) -> str:
    # What a user gives as an id may be "../x", and must not name another resource.
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _form_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value)


def _json(answer: httpx.Response) -> JsonObject:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ApiError(answer.status_code, "not_stagewave", "the answer is not Stagewave's")
    return body


def _check(answer: httpx.Response) -> None:
    """An error answer as an exception; RFC 9457 names the message ``detail``."""
    if answer.is_success:
        return
    body = _json(answer)
    kind = NotFound if answer.status_code in (404, 410) else ApiError
    wait = answer.headers.get("retry-after", "")
    raise kind(
        answer.status_code,
        str(body.get("code", "error")),
        str(body.get("detail") or body.get("title") or answer.reason_phrase),
        field=body.get("field"),
        retry_after_s=float(wait) if wait.isdecimal() else None,
    )


def _unreachable(http: httpx.Client, error: httpx.HTTPError) -> Unreachable:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Unreachable(f"no Stagewave server answers at {http.base_url}")
    return Unreachable(f"the connection to {http.base_url} broke")


def _bear(error: ClientError, down_since: float | None) -> float:
    """Wait a little when the server may come back; raise ``error`` when it has been away too long."""
    passing = isinstance(error, Unreachable) or (
        isinstance(error, ApiError) and error.status in (502, 503, 504)
    )
    now = time.monotonic()
    if not passing or (down_since is not None and now - down_since > PATIENCE_S):
        raise error
    time.sleep(0.5)
    return now if down_since is None else down_since
