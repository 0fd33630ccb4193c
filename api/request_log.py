"""An id for every request, one JSON line for each that ended, and how long answers took to begin."""

from __future__ import annotations

import logging
import re
import time

from flask import Flask, Response, g, request
from ulid import ULID

from api.http_metrics import HttpMetrics

_log = logging.getLogger(__name__)
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines; a line each would drown the rest."""


def route_of_request() -> str:
    """The template of the path, never the path itself: it may hold anything."""
    return request.url_rule.rule if request.url_rule is not None else "(none)"


def request_facts() -> dict[str, object]:
    """What a log line may say of the current request."""
    return {"request_id": g.get("request_id"), "method": request.method, "route": route_of_request()}


def register(app: Flask, metrics: HttpMetrics) -> None:
    def begin() -> None:
        given = request.headers.get("X-Request-Id", "")
        g.request_id = given if _ACCEPTED_ID.fullmatch(given) else f"req_{ULID()}"
        g.began = time.monotonic()

    def answer(response: Response) -> Response:
        took_s = time.monotonic() - g.began
        response.headers["X-Request-Id"] = g.request_id
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        metrics.observe(
            route_of_request(), request.method, response.status_code, g.get("waited", False), took_s
        )
        if request.path not in _QUIET:
            facts = {"status": response.status_code, "ms": round(took_s * 1000, 1)}
            _log.info("request", extra=request_facts() | facts)
        return response

    app.before_request(begin)
    app.after_request(answer)
