"""Query parameters, read strictly: each raises ``StagewaveError`` that names itself."""

from __future__ import annotations

import math
from collections.abc import Collection
from urllib.parse import urlencode

from flask import request

from stage_pipeline.errors import ErrorCode, StagewaveError


def choice(name: str, allowed: Collection[str], default: str | None = None) -> str | None:
    given = request.args.get(name)
    if given is None:
        return default
    if given not in allowed:
        raise bad_parameter(name, f"it must be one of {', '.join(sorted(allowed))}")
    return given


def whole(name: str, default: int, least: int, most: int) -> int:
    given = request.args.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10 and least <= int(given) <= most):
        raise bad_parameter(name, f"it must be a whole number from {least} to {most}")
    return int(given)


def seconds(name: str, most: float) -> float | None:
    """A time; longer ones are cut to ``most``."""
    given = request.args.get(name)
    if given is None:
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise bad_parameter(name, "it must be a number of seconds")
    return min(value, most)


def link_to_next(cursor: str | None) -> dict[str, str]:
    """The headers of a page: where the next one is, if there is one."""
    if cursor is None:
        return {}
    following = urlencode({**request.args, "after": cursor})
    return {"Link": f'<{request.path}?{following}>; rel="next"'}


def bad_parameter(name: str, why: str) -> StagewaveError:
    return StagewaveError(ErrorCode.INVALID_REQUEST, why, field=name)
