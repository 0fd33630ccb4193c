"""JSON out: UTF-8 as it is, and never a NaN."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flask import Response


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    response = Response(text, status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(headers or {})
    return response
