"""httpx at both clients' border: how a call is put to it, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from stagewave.client.call import Answer, Call, Upload
from stagewave.errors import ClientError, Unreachable

SILENCE_S = 60.0
"""A stream of events that is silent for longer is broken: heartbeats come every 15 s."""
QUEUED_S = 600.0
"""Live audio begins when the job does, and until then nothing comes."""


def settings_of(base_url: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    """The arguments of ``httpx.Client`` and ``httpx.AsyncClient``."""
    headers = {"User-Agent": "stagewave-client"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    # As many connections as there are calls at a time: who makes them bounds them.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    return {"base_url": base_url, "headers": headers, "timeout": timeout_s, "limits": limits}


@contextmanager
def request_of(call: Call, timeout: httpx.Timeout) -> Iterator[dict[str, Any]]:
    """The arguments of ``request`` and ``stream``; a file is open for as long."""
    request: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": call.params,
        "headers": call.headers,
        "timeout": timeout,
    }
    if call.file is None:
        yield request | {"json": call.json, "data": call.form}
        return
    with _opened(call.file) as content:
        yield request | {"data": call.form, "files": {"file": (call.file.name, content)}}


@contextmanager
def _opened(upload: Upload) -> Iterator[IO[bytes] | bytes]:
    if isinstance(upload.source, Path):
        with upload.source.open("rb") as file:
            yield file
    else:
        yield upload.source


@contextmanager
def mapped_errors(base_url: httpx.URL | str) -> Iterator[None]:
    """httpx's errors as ours."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise ClientError(f"{base_url} is no http or https URL") from error
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(f"no Stagewave server answers at {base_url}") from error
    except httpx.HTTPError as error:
        raise Unreachable(f"the connection to {base_url} broke") from error


def answer_of(response: httpx.Response) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, response.content)
