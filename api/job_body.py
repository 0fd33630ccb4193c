"""Reading the body of a job request off the wire: JSON, or a multipart form with a file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flask import Request
from gunicorn.http.errors import ParseException
from pydantic import JsonValue
from werkzeug.datastructures import FileStorage, MultiDict
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import FormDataParser

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.input_audio import NamedOrSent, named_audio, sent_file
from workers.job_request import JSON_FIELDS, KNOWN_FIELDS, JobRequest, parse_request
from workers.settings import Settings
from workers.strict_json import parse_json

_FORM_OVERHEAD_BYTES = 1024 * 1024
_FILE_PART = "file"
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"


class StrictFormParser(FormDataParser):
    """A form that cannot be read is an error, not an empty form."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # passed on as they come
        super().__init__(*args, **kwargs)
        self.silent = False


class StrictRequest(Request):
    """Flask's request, with that parser."""

    form_data_parser_class = StrictFormParser
    max_form_memory_size = 500_000
    """Of one field that is no file."""
    max_form_parts = 100


def read_job_request(request: Request, settings: Settings) -> tuple[JobRequest, NamedOrSent | None]:
    """The request and its audio, each in the right form; raises ``StagewaveError`` for what is not."""
    if request.mimetype == "multipart/form-data":
        return _from_form(request, settings)
    if request.mimetype == "application/json":
        return _from_json(request, settings)
    raise StagewaveError(
        ErrorCode.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json or multipart/form-data"
    )


def read_object(request: Request, settings: Settings) -> dict[str, JsonValue]:
    """A JSON body, which must be an object."""
    _check_type(request, "application/json")
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if charset not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise StagewaveError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "JSON must be UTF-8")
    body = parse_json(_whole_body(request, settings.max_json_bytes))
    if not isinstance(body, dict):
        raise StagewaveError(ErrorCode.INVALID_JSON, "the body must be a JSON object")
    return body


def read_form(request: Request, settings: Settings) -> tuple[MultiDict[str, str], FileStorage | None]:
    """The fields of a multipart body, and its part ``file``."""
    _check_type(request, "multipart/form-data")
    request.max_content_length = settings.max_upload_bytes + _FORM_OVERHEAD_BYTES
    try:
        form, files = request.form, request.files
    except (ValueError, ParseException):  # whose messages hold raw bytes of the body
        raise _malformed("the multipart body cannot be read") from None
    for name, values in form.lists():
        # What bytes that are no UTF-8 were read as. No text that anybody means has it.
        if any(_UNREADABLE in text for text in (name or "", *values)):  # a part may have no name
            raise _malformed("a field is not UTF-8")
    if _FILE_PART in form:
        raise _malformed("the part needs a filename to be a file", field=_FILE_PART)
    return form, _the_file(files)


def _check_type(request: Request, wanted: str) -> None:
    if request.mimetype != wanted:
        raise StagewaveError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"the body must be {wanted}")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise StagewaveError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "send the body without a Content-Encoding")


def _from_json(request: Request, settings: Settings) -> tuple[JobRequest, NamedOrSent | None]:
    body = read_object(request, settings)
    wanted = parse_request(body, from_form=False)
    audio = named_audio(wanted.audio_url, settings) if wanted.audio_url else None
    if audio is None and wanted.hears:
        raise StagewaveError(
            ErrorCode.INVALID_REQUEST, f"a job of type {wanted.type} needs audio", field="audio_url"
        )
    return wanted, audio


def _whole_body(request: Request, limit_bytes: int) -> bytes:
    """Straight from the server's stream, which ends where the body does: Werkzeug's own reader takes three
    times as long over a large body, and is silent about one that is cut at the limit."""
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise RequestEntityTooLarge
    try:
        body: bytes = request.environ["wsgi.input"].read(limit_bytes + 1)
    except (OSError, ParseException):
        raise StagewaveError(ErrorCode.INVALID_JSON, "the body did not come whole") from None
    if len(body) > limit_bytes:
        raise RequestEntityTooLarge
    if announced is not None and len(body) < announced:
        raise StagewaveError(ErrorCode.INVALID_JSON, "the body did not come whole")
    return body


def _from_form(request: Request, settings: Settings) -> tuple[JobRequest, NamedOrSent | None]:
    form, upload = read_form(request, settings)
    fields = form_fields(form, KNOWN_FIELDS)
    wanted = parse_request(fields, from_form=True)
    if upload is None:
        if wanted.audio_url:
            return wanted, named_audio(wanted.audio_url, settings)
        if wanted.hears:
            raise _malformed("there is no part with the audio", field=_FILE_PART)
        return wanted, None
    if not wanted.hears or wanted.audio_url:
        why = "a job has one audio" if wanted.hears else f"a job of type {wanted.type} takes no audio"
        raise StagewaveError(ErrorCode.INVALID_REQUEST, why, field=_FILE_PART)
    return wanted, sent_file(upload.stream, upload.filename, settings)


def form_fields(form: MultiDict[str, str], known: Collection[str]) -> dict[str, JsonValue]:
    """The fields of a form; some of them are JSON. ``known``: those that there are."""
    fields: dict[str, JsonValue] = {}
    for name, values in form.lists():
        if not name:
            raise _malformed("a part has no name")
        if len(values) > 1:
            raise _malformed("a field stands in the form twice", field=name if name in known else None)
        if values[0] != "" or name == "text":  # browsers send the fields that were left empty
            is_json = name in JSON_FIELDS
            fields[name] = parse_json(values[0].encode(), field=name) if is_json else values[0]
    return fields


def _the_file(files: MultiDict[str, FileStorage]) -> FileStorage | None:
    uploads = list(files.items(multi=True))
    if len(uploads) > 1:
        raise _malformed("there is more than one file", field=_FILE_PART)
    if not uploads:
        return None
    name, upload = uploads[0]
    if name != _FILE_PART:
        raise _malformed("the audio must be the part named file", field=_FILE_PART)
    return upload


def _malformed(why: str, field: str | None = None) -> StagewaveError:
    return StagewaveError(ErrorCode.INVALID_MULTIPART, why, field=field)
