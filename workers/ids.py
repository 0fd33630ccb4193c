"""Ids of records: a prefix that says of what, and a ULID, so that they sort by creation."""

from __future__ import annotations

from ulid import ULID

_ULID_CHARS = 26


def new_id(prefix: str) -> str:
    return f"{prefix}{ULID()}"


def is_id(text: str, prefix: str) -> bool:
    """Whether it may be such an id, in the one way in which we write it."""
    if not text.startswith(prefix) or len(text) != len(prefix) + _ULID_CHARS:
        return False
    ulid = text[len(prefix) :]
    try:
        return str(ULID.from_str(ulid)) == ulid
    except ValueError:
        return False
