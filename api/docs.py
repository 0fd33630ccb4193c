"""``/openapi.json``, and ``/docs``: a page that shows it, with nothing fetched from elsewhere."""

from __future__ import annotations

import json
from importlib import resources

from flask import Blueprint, Response, current_app

from api.openapi import openapi_document
from api.problems import title_of
from stage_pipeline.errors import ErrorCode

blueprint = Blueprint("docs", __name__)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILES = {
    "docs.html": "text/html; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
    "docs.css": "text/css; charset=utf-8",
}


@blueprint.get("/openapi.json")
def openapi() -> Response:
    # Made at each request: it takes milliseconds, and is asked for by people.
    document = openapi_document(current_app)
    document["x-errors"] = [
        {"code": e.code, "title": title_of(e.code), "status": e.http_status, "retryable": e.retryable}
        for e in ErrorCode
    ]
    return Response(json.dumps(document), content_type="application/json")


@blueprint.get("/docs")
def page() -> Response:
    return _file("docs.html")


@blueprint.get("/docs/docs.js")
def script() -> Response:
    return _file("docs.js")


@blueprint.get("/docs/docs.css")
def style() -> Response:
    return _file("docs.css")


def _file(name: str) -> Response:
    data = (resources.files("api") / "pages" / name).read_bytes()
    response = Response(data, content_type=_FILES[name])
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-cache"
    return response
