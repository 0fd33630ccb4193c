"""Errors of the OpenAI-compatible paths, in the form and with the statuses that OpenAI's clients act on."""

from __future__ import annotations

from http import HTTPStatus

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.openai_body import UnsupportedValue

JsonObject = dict[str, object]

_MODELS = "/v1/models"
_PREFIXES = ("/v1/audio/", "/v1/chat/", f"{_MODELS}/")
_SHARED_PREFIXES = ("/v1/files", "/v1/batches")
_STATUS = {
    ErrorCode.MODEL_UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorCode.DEADLINE_EXCEEDED: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.DISK_FULL: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.NOT_ACCEPTABLE: HTTPStatus.BAD_REQUEST,
}
_NAMES = {ErrorCode.MODEL_UNKNOWN: "model_not_found", ErrorCode.UNAUTHORIZED: "invalid_api_key"}
"""Codes that clients look for under OpenAI's name. All others are ours."""


def is_openai_path(path: str) -> bool:
    return path == _MODELS or path.startswith(_PREFIXES)


def is_shared_path(path: str) -> bool:
    """Whether both OpenAI's clients and ours ask there: errors are problems that the former can read."""
    return path.startswith(_SHARED_PREFIXES)


def openai_status(code: ErrorCode, status: int) -> int:
    """What ``status`` is called there: a request with a fault is 400, whatever the fault."""
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return _STATUS.get(code, HTTPStatus.BAD_REQUEST)
    return _STATUS.get(code, HTTPStatus(status))


def openai_error(
    code: ErrorCode, message: str, status: int, param: str | None, name: str | None
) -> JsonObject:
    """The body. ``name`` stands for the code where it says more than ours."""
    return {
        "error": {
            "message": message,
            "type": _type_of(status),
            "param": param,
            "code": name or _NAMES.get(code, code.code),
        }
    }


def openai_error_of(error: StagewaveError) -> JsonObject:
    """The body for what went wrong when the answer had begun."""
    status = openai_status(error.code, error.code.http_status)
    return openai_error(error.code, error.message, status, error.field, openai_name(error))


def openai_name(error: StagewaveError) -> str | None:
    return "unsupported_value" if isinstance(error, UnsupportedValue) else None


def _type_of(status: int) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return "authentication_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    return "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
