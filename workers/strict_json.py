"""JSON as RFC 8259 has it, and no more: what Python's reader lets through beyond that is refused."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from pydantic import JsonValue

from stage_pipeline.errors import ErrorCode, StagewaveError

MAX_DEPTH = 32
MAX_ITEMS = 250_000
"""Commas and brackets in a body. A request has a few dozen; 64 MB of ``{},`` would take gigabytes."""
_INT_LIMIT = 2**63


def parse_json(data: bytes, *, field: str | None = None) -> JsonValue:
    """Raises ``StagewaveError(invalid_json)``, saying what is wrong with ``field`` (or with the body)."""
    try:
        # Without the space behind it: megabytes of that would cost more than what they surround.
        text = data.rstrip(b" \t\r\n").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8", field) from None
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_ITEMS:
        raise _invalid("it has too many parts", field)
    try:
        value: JsonValue = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_constant,
        )
    except RecursionError:
        raise _invalid("it is nested too deeply", field) from None
    except json.JSONDecodeError as error:
        raise _invalid(f"line {error.lineno}, column {error.colno}: {error.msg}", field) from None
    except _Refused as refused:
        raise _invalid(str(refused), field) from None
    _check(value, field)
    return value


class _Refused(Exception):
    """What the reader itself would have let through."""


def _invalid(why: str, field: str | None) -> StagewaveError:
    return StagewaveError(ErrorCode.INVALID_JSON, f"this JSON cannot be read: {why}", field=field)


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Refused("an object has the same key twice")
    return made


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -_INT_LIMIT <= int(digits) < _INT_LIMIT:
        raise _Refused("an integer does not fit in 64 bits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _Refused("a number is too large")
    return value


def _constant(_name: str) -> NoReturn:
    raise _Refused("NaN and Infinity are not JSON")


def _check(value: JsonValue, field: str | None) -> None:
    """Depth (others walk this recursively) and lone surrogates (nothing can encode them again)."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item, field)
            elif isinstance(item, dict):
                for key in item:
                    _check_text(key, field)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise _invalid("it is nested too deeply", field)


def _check_text(text: str, field: str | None) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid("a string has half of a surrogate pair", field) from None
