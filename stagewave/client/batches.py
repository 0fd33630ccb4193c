"""Batches: many requests in one file, and what each call about them sends."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypedDict

from stagewave.client.call import Call, Plan, Upload, form_of, given, path_of
from stagewave.client.jobs import IDEMPOTENCY, new_key
from stagewave.client.waiting import looking, until_finished
from stagewave.record import Batch, BatchLine, JsonObject, Page

Lines = Literal["failed", "unfinished"]
Requests = Path | str | Iterable[Mapping[str, object]]
"""A JSONL file, an ``s3://`` URL of one, or the requests themselves."""


class BatchOptions(TypedDict, total=False):
    """What a batch may ask for besides its requests: the fields of ``POST /v1/batches``."""

    endpoint: str | None
    completion_window: str | None
    metadata: JsonObject | None
    priority: int | None
    webhook: JsonObject | None


class BatchFilters(TypedDict, total=False):
    """Which batches to list: after which one, and how many a page."""

    after: str | None
    limit: int | None


@contextmanager
def as_file(requests: Requests) -> Iterator[Path | str]:
    """The requests as something to send: in a temporary file when they are none yet, since there may be
    more of them than fit in memory."""
    if isinstance(requests, Path | str):
        yield requests
        return
    with tempfile.TemporaryDirectory(prefix="stagewave-") as folder:
        path = Path(folder) / "requests.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for request in requests:
                file.write(json.dumps(request, ensure_ascii=False) + "\n")
        yield path


def create(source: Path | str, idempotency_key: str | None, options: BatchOptions) -> Plan[Batch]:
    fields = given({**options})
    headers = {IDEMPOTENCY: idempotency_key or new_key()}
    if isinstance(source, str):
        if not source.startswith("s3://"):
            raise ValueError("requests that are a str are an s3 URL; a file is a Path")
        answer = yield Call(
            method="POST", path="/v1/batches", headers=headers, json={"input": source, **fields}
        )
    else:
        answer = yield Call(
            method="POST",
            path="/v1/batches",
            headers=headers,
            form=form_of(fields),
            file=Upload.of(source),
        )
    return Batch(answer.json())


def get(batch_id: str, wait_s: float) -> Plan[Batch]:
    return Batch((yield looking(path_of("batches", batch_id), wait_s)).json())


def wait(batch_id: str, timeout_s: float | None) -> Plan[Batch]:
    return (yield from until_finished(path_of("batches", batch_id), Batch, timeout_s))


def page(filters: BatchFilters) -> Plan[Page[Batch]]:
    params = {name: str(value) for name, value in given(filters).items()}
    found = (yield Call(method="GET", path="/v1/batches", params=params)).json()
    batches = tuple(Batch(record) for record in found["data"])
    return Page(batches, batches[-1].id if batches and found["has_more"] else None)


def cancel(batch_id: str) -> Plan[Batch]:
    return Batch((yield Call(method="POST", path=path_of("batches", batch_id, "cancel"))).json())


def resume(batch_id: str, only: Lines | None, key: str | None) -> Plan[Batch]:
    answer = yield Call(
        method="POST",
        path=path_of("batches", batch_id, "resume"),
        headers={IDEMPOTENCY: key or new_key()},
        json=given({"only": only}),
    )
    return Batch(answer.json())


def lines(batch_id: str, which: Literal["output", "errors"]) -> Call:
    """The call whose answer is JSONL."""
    return Call(method="GET", path=path_of("batches", batch_id, which))


def read_line(line: str) -> BatchLine | None:
    return BatchLine(json.loads(line)) if line.strip() else None
