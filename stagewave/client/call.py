"""What the client sends and gets, without sending it: both clients share all that is decided here."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from stagewave.errors import ApiError, NotFound
from stagewave.record import JsonObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Upload:
    """The part ``file`` of a form; a file is opened anew for each try."""

    source: Path | bytes
    name: str

    @classmethod
    def of(cls, source: Path | bytes, name: str | None = None) -> Upload:
        name = name or (source.name if isinstance(source, Path) else "file")
        # A name from a file system need not be text that can be sent.
        return cls(source, name.encode("utf-8", "replace").decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. ``wait_s`` is how long the server may think, on top of the client's time-out;
    ``after_s`` is a pause before it is sent."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: JsonObject | None = None
    form: Mapping[str, str] | None = None
    file: Upload | None = None
    wait_s: float = 0.0
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole. The names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> JsonObject:
        """The body as an object; raises ``ApiError(not_stagewave)`` when it is none."""
        try:
            body = json.loads(self.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ApiError(self.status, "not_stagewave", "the answer is not Stagewave's")
        return body

    def check(self) -> None:
        """Raise what an error answer says; RFC 9457 names the message ``detail``."""
        if 200 <= self.status < 300:
            return
        body = self.json()
        kind = NotFound if self.status in (404, 410) else ApiError
        wait = self.headers.get("retry-after", "")
        raise kind(
            self.status,
            str(body.get("code", "error")),
            str(body.get("detail") or body.get("title") or self.status),
            field=body.get("field"),
            retry_after_s=float(wait) if wait.isdecimal() else None,
        )


Plan = Generator[Call, Answer, T]
"""Yields calls, is sent their answers (never an error: those are thrown into it), and returns a value."""


def path_of(resource: str, name: str, *more: str) -> str:
    """``/v1/{resource}/{name}``. What a user gives as an id may be "../x", and must name nothing else."""
    return "/".join((f"/v1/{resource}", quote(name, safe=""), *more))


def form_of(fields: JsonObject) -> dict[str, str]:
    """Fields as a form carries them."""
    return {name: _form_value(value) for name, value in fields.items()}


def given(fields: Mapping[str, object]) -> JsonObject:
    """Without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def _form_value(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)
