"""Which bytes of a stored object a request wants (RFC 9110, section 14): one range, or all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flask import Request

_ONE_RANGE = re.compile(r"bytes\s*=\s*(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """``start`` to ``stop``, the end not included, of ``total`` bytes."""

    start: int
    stop: int
    total: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.stop - 1}/{self.total}"


class Unsatisfiable(Exception):
    """A range that lies outside the object."""


def wanted_range(request: Request, total: int, etag: str) -> ByteRange | None:
    """The one range asked for; None for the whole: no ``Range``, one that makes no sense, several
    at once, or an ``If-Range`` that names another version. Raises ``Unsatisfiable``."""
    if request.headers.get("Range") is None:
        return None
    condition = request.headers.get("If-Range")
    if condition is not None and condition.strip() != f'"{etag}"':
        return None
    found = _ONE_RANGE.fullmatch(request.headers["Range"].strip())
    if found is None or found["first"] == found["last"] == "":
        return None
    if found["first"] == "":  # the last so many bytes
        start, stop = max(total - int(found["last"]), 0), total
    else:
        start = int(found["first"])
        stop = min(int(found["last"]) + 1, total) if found["last"] else total
        if found["last"] and int(found["last"]) < start:
            return None
    if start >= stop:
        raise Unsatisfiable
    return ByteRange(start, stop, total)
