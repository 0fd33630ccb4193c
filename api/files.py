"""``/v1/files``: the lines that a batch is made of, and what batches leave (as OpenAI's)."""

from __future__ import annotations

import os
from typing import IO

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field

from api.batch_records import DeletedFile, FileList, FileRecord
from api.job_body import form_fields, read_form
from api.json_response import json_response
from api.operation import Answer, Operation, Parameter, describe
from api.query import bad_parameter, choice, whole
from api.services import Services, services
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.batch_output import CONTENT_TYPE
from workers.file_store import PURPOSES, StoredFile, file_key, is_file_id, new_file_id

blueprint = Blueprint("files", __name__, url_prefix="/v1/files")

FILE_ID = Parameter("file_id", "path", "The file's id: `file_` and a ULID.")
_NAME_CHARS = 255
_ORDERS = ("asc", "desc")
_MISSING = {404: "There is no such file."}
_AWAY = {503: "The queue or the object store cannot be reached; `Retry-After` says when to try again."}


class FileForm(BaseModel):
    """A file to upload."""

    model_config = ConfigDict(extra="forbid")

    purpose: str = Field(description="`batch`.")
    file: bytes = Field(
        description="JSON Lines: one request a line.", json_schema_extra={"format": "binary"}
    )


@blueprint.post("")
@describe(
    Operation(
        summary="Upload a file of lines",
        tag="batches",
        description="It is looked at when a batch is made of it.",
        form_model=FileForm,
        answers={201: Answer("The file.", FileRecord, headers=("Location",))},
        problems={
            400: "The body is no form that can be read, or has no file.",
            413: "The file is too large.",
            415: "The body is no multipart form.",
            422: "The purpose is another one.",
            **_AWAY,
        },
    )
)
def create() -> Response:
    having = services()
    form, upload = read_form(request, having.settings)
    purpose = form_fields(form, FileForm.model_fields).get("purpose")
    if purpose != "batch":
        raise StagewaveError(ErrorCode.INVALID_REQUEST, "it must be batch", field="purpose")
    if upload is None:
        raise StagewaveError(ErrorCode.INVALID_MULTIPART, "there is no part with the file", field="file")
    made = keep_file(having, upload.stream, upload.filename)
    return json_response(made.public(), 201, {"Location": f"/v1/files/{made.id}"})


@blueprint.get("")
@describe(
    Operation(
        summary="List files, newest first",
        tag="batches",
        description="Those that clients have sent, and those that batches have left.",
        parameters=(
            Parameter("purpose", "query", "Only these.", {"type": "string", "enum": list(PURPOSES)}),
            Parameter("order", "query", "`asc`: oldest first.", {"type": "string", "enum": list(_ORDERS)}),
            Parameter("after", "query", "`last_id` of the page before."),
            Parameter("limit", "query", "Files a page.", {"type": "integer", "minimum": 1, "maximum": 100}),
        ),
        answers={200: Answer("One page.", FileList)},
        problems={422: "A parameter is wrong (`field` names it).", **_AWAY},
    )
)
def index() -> Response:
    after = request.args.get("after")
    if after is not None and not is_file_id(after):
        raise bad_parameter("after", "this is no file id")
    found, has_more = services().backend.files.page(
        purpose=choice("purpose", PURPOSES),
        after=after,
        limit=whole("limit", 20, 1, 100),
        oldest_first=choice("order", _ORDERS) == "asc",
    )
    return json_response(
        {
            "object": "list",
            "data": [file.public() for file in found],
            "first_id": found[0].id if found else None,
            "last_id": found[-1].id if found else None,
            "has_more": has_more,
        }
    )


@blueprint.get("/<file_id>")
@describe(
    Operation(
        summary="Get a file's record",
        tag="batches",
        parameters=(FILE_ID,),
        answers={200: Answer("The file.", FileRecord)},
        problems={**_MISSING, **_AWAY},
    )
)
def show(file_id: str) -> Response:
    return json_response(find_file(services(), file_id).public())


@blueprint.get("/<file_id>/content")
@describe(
    Operation(
        summary="Get what is in a file",
        tag="batches",
        parameters=(FILE_ID,),
        answers={200: Answer("The bytes.", media_types=(CONTENT_TYPE,))},
        problems={**_MISSING, **_AWAY},
    )
)
def content(file_id: str) -> Response:
    having = services()
    found = having.backend.objects.open(find_file(having, file_id).key)
    response = Response(found.iter_chunks(), content_type=CONTENT_TYPE)
    response.call_on_close(found.close)
    response.headers["Content-Length"] = str(found.size)
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.delete("/<file_id>")
@describe(
    Operation(
        summary="Delete a file",
        tag="batches",
        description="A batch that still reads it fails; what it has done is kept.",
        parameters=(FILE_ID,),
        answers={200: Answer("It is gone.", DeletedFile)},
        problems={**_MISSING, **_AWAY},
    )
)
def delete(file_id: str) -> Response:
    having = services()
    found = find_file(having, file_id)
    having.backend.objects.delete(found.key)
    having.backend.files.forget(file_id)
    return json_response({"id": file_id, "object": "file", "deleted": True})


def find_file(having: Services, file_id: str, field: str | None = None) -> StoredFile:
    """Raises ``not_found``, naming ``field`` where the id stood in one."""
    if not is_file_id(file_id):
        raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such file", field=field)
    try:
        return having.backend.files.get(file_id)
    except StagewaveError as error:
        error.field = field
        raise


def keep_file(having: Services, stream: IO[bytes], filename: str | None) -> StoredFile:
    """Store what was sent, which lies on disk while it comes, and note it. Raises ``too_large``."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    limit = having.settings.max_upload_bytes
    if size > limit:
        raise StagewaveError(ErrorCode.TOO_LARGE, f"a file may have {limit} bytes at most", field="file")
    file_id = new_file_id()
    having.backend.objects.put_file(file_key(file_id), stream, CONTENT_TYPE)
    return having.backend.files.add(file_id, size, (filename or "lines.jsonl")[:_NAME_CHARS])


def take_back(having: Services, file: StoredFile) -> None:
    """Remove what was sent for nothing."""
    having.backend.objects.delete(file.key)
    having.backend.files.forget(file.id)
