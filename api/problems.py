"""Every error as RFC 9457 problem details, and the one edge where an unforeseen one is caught."""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Sequence
from http import HTTPStatus

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from api.openai_errors import is_openai_path, is_shared_path, openai_error, openai_name, openai_status
from api.request_log import request_facts
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.faults import Fault, InvalidRequest

_log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

_DEFAULT_RETRY_AFTER_S = {
    ErrorCode.QUEUE_FULL: 5.0,
    ErrorCode.TOO_MANY_WAITERS: 2.0,
    ErrorCode.BROKER_UNAVAILABLE: 2.0,
    ErrorCode.STORE_UNAVAILABLE: 2.0,
    ErrorCode.DISK_FULL: 10.0,
    ErrorCode.DEADLINE_EXCEEDED: 5.0,
}

_BY_STATUS = {
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    HTTPStatus.NOT_FOUND: ErrorCode.NOT_FOUND,
    HTTPStatus.NOT_ACCEPTABLE: ErrorCode.NOT_ACCEPTABLE,
    HTTPStatus.METHOD_NOT_ALLOWED: ErrorCode.METHOD_NOT_ALLOWED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorCode.TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ErrorCode.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: ErrorCode.RANGE_NOT_SATISFIABLE,
}

_PUBLIC_TEXT = {
    HTTPStatus.NOT_FOUND: "there is nothing at this path",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path takes the methods that the Allow header names",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the request body, or one of its form fields, is too large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "this kind of body is not taken here",
}


def title_of(code: str) -> str:
    """The code in words: it does not change between occurrences."""
    return code.replace("_", " ").capitalize()


def problem(
    code: ErrorCode,
    detail: str,
    *,
    status: int | None = None,
    field: str | None = None,
    faults: Sequence[Fault] = (),
    retry_after_s: float | None = None,
    openai_code: str | None = None,
) -> Response:
    """A problem response; ``status`` defaults to the code's own. Where OpenAI's clients ask, in their form,
    with ``openai_code`` for the code."""
    status = code.http_status if status is None else status
    if is_openai_path(request.path):
        status = openai_status(code, status)
        told = openai_error(code, detail, status, field, openai_code)
        response = Response(json.dumps(told, ensure_ascii=False), status, content_type="application/json")
        return _finished(response, code, retry_after_s, openai=True)
    body: dict[str, object] = {
        "type": f"/docs#error-{code.code}",
        "title": title_of(code.code),
        "status": status,
        "detail": detail,
        "code": code.code,
        "retryable": code.retryable,
        "request_id": g.get("request_id"),
    }
    if field is not None:
        body["field"] = field
    if faults:
        body["errors"] = [{"field": fault.field, "detail": fault.message} for fault in faults]
    shared = is_shared_path(request.path)
    if shared:
        body["message"] = detail
    response = Response(json.dumps(body, ensure_ascii=False), status, content_type=MEDIA_TYPE)
    return _finished(response, code, retry_after_s, openai=shared)


def _finished(
    response: Response, code: ErrorCode, retry_after_s: float | None, *, openai: bool
) -> Response:
    """With the headers that both forms have, and what OpenAI's clients look for."""
    if openai:
        # They would try every 409 and every 5xx again.
        response.headers["x-should-retry"] = "true" if code.retryable else "false"
    wait_s = _DEFAULT_RETRY_AFTER_S.get(code) if retry_after_s is None else retry_after_s
    if wait_s is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    if code is ErrorCode.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.headers["Cache-Control"] = "no-store"
    return response


def problem_of(error: StagewaveError) -> Response:
    return problem(
        error.code,
        error.message,
        field=error.field,
        faults=error.faults if isinstance(error, InvalidRequest) else (),
        retry_after_s=error.retry_after_s,
        openai_code=openai_name(error),
    )


def register(app: Flask) -> None:
    """Whatever goes wrong under ``app`` is answered as a problem."""
    app.register_error_handler(StagewaveError, problem_of)
    app.register_error_handler(HTTPException, _http_problem)
    app.register_error_handler(Exception, _unforeseen)


def _http_problem(error: HTTPException) -> Response:
    status = HTTPStatus(error.code or 500)
    fallback = ErrorCode.INVALID_REQUEST if status < 500 else ErrorCode.INTERNAL
    detail = _PUBLIC_TEXT.get(status, f"the request cannot be answered: {status.phrase}")
    response = problem(_BY_STATUS.get(status, fallback), detail, status=status)
    for name, value in error.get_headers(request.environ):
        if name.lower() not in ("content-type", "content-length"):
            response.headers[name] = value
    return response


def _unforeseen(error: Exception) -> Response:
    # The message of a foreign exception may hold a user's text or a path: its type and place are enough.
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}:{frame.name}" for frame in frames]
    facts = {"error": type(error).__name__, "where": where}
    _log.error("request failed", extra=request_facts() | facts)
    return problem(ErrorCode.INTERNAL, "something failed here; the request id finds it in the log")
