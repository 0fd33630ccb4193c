"""``/v1/batches``: many jobs out of one file of lines (as OpenAI's Batch API)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain

from flask import Blueprint, Response, g, request

from api.batch_records import BatchList, BatchRecord
from api.batch_request import (
    BatchForm,
    BatchRequest,
    ResumeRequest,
    read_batch_request,
    read_resume_request,
)
from api.files import find_file, keep_file, take_back
from api.idempotency import HEADER, keyed
from api.jobs import MAX_WAIT_S, wait_for_end
from api.json_response import json_response
from api.operation import Answer, Operation, Parameter, describe
from api.query import bad_parameter, seconds, whole
from api.records import Delivery, DeliveryList
from api.services import Services, services
from api.spoken import StreamCut
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.batch import Batch, BatchSpec, is_batch_id, new_batch_id
from workers.batch_output import CONTENT_TYPE, read_output
from workers.batch_store import Kind
from workers.file_store import StoredFile
from workers.idempotency import Idempotency
from workers.input_audio import named_object

blueprint = Blueprint("batches", __name__, url_prefix="/v1/batches")

BATCH_ID = Parameter("batch_id", "path", "The batch's id: `batch_` and a ULID.")
_KEY = Parameter(HEADER, "header", "The same key and the same request make one batch, for a day.")
_MISSING = {404: "There is no such batch."}
_AWAY = {503: "The queue or the object store cannot be reached; `Retry-After` says when to try again."}


@blueprint.post("")
@describe(
    Operation(
        summary="Create a batch",
        tag="batches",
        description="Of an uploaded file, of an object in the store, or as a form with the lines in the "
        "part `file`. Each line is a request as in OpenAI's Batch API (`custom_id`, `method`, `url`, "
        "`body`) or the body of `POST /v1/jobs`, with a `custom_id` if you like.",
        request_model=BatchRequest,
        form_model=BatchForm,
        parameters=(_KEY,),
        answers={
            201: Answer(
                "The batch; its lines are about to be counted.", BatchRecord, headers=("Location",)
            ),
            200: Answer("The batch that an earlier request made under this key.", BatchRecord),
        },
        problems={
            400: "The body is no JSON, or no form, that can be read.",
            404: "There is no such file.",
            410: "The batch made earlier under this key is gone.",
            413: "The file is too large.",
            415: "The body is neither JSON nor a multipart form.",
            422: "A field is wrong (`field` names it), or the key was used with another request.",
            **_AWAY,
        },
    )
)
def create() -> Response:
    having = services()
    wanted, sent = read_batch_request(request, having.settings)
    asked = wanted.model_dump(mode="json")
    key = request.headers.get(HEADER)
    if sent is not None and key is not None:
        asked["file"] = hashlib.file_digest(sent[0], "sha256").hexdigest()  # type: ignore[arg-type]  # any readable binary file will do
    idempotency = keyed(key, asked)
    # Before the file is looked for: it may be gone by now, and the batch that was made of it be there.
    if (known := having.backend.batches.under(idempotency)) is not None:
        return _answer(known, False)
    if sent is None:
        return _made(having, wanted, _input(having, wanted), idempotency)
    file = keep_file(having, *sent)
    try:
        return _made(having, wanted, file, idempotency)
    except StagewaveError as error:
        if not error.code.retryable:
            take_back(having, file)
        raise


@blueprint.get("")
@describe(
    Operation(
        summary="List batches, newest first",
        tag="batches",
        parameters=(
            Parameter("after", "query", "`last_id` of the page before."),
            Parameter(
                "limit", "query", "Batches a page.", {"type": "integer", "minimum": 1, "maximum": 100}
            ),
        ),
        answers={200: Answer("One page.", BatchList)},
        problems={422: "A parameter is wrong (`field` names it).", **_AWAY},
    )
)
def index() -> Response:
    after = request.args.get("after")
    if after is not None and not is_batch_id(after):
        raise bad_parameter("after", "this is no batch id")
    found, has_more = services().backend.batches.page(after, whole("limit", 20, 1, 100))
    return json_response(
        {
            "object": "list",
            "data": [batch.public() for batch in found],
            "first_id": found[0].id if found else None,
            "last_id": found[-1].id if found else None,
            "has_more": has_more,
        }
    )


@blueprint.get("/<batch_id>")
@describe(
    Operation(
        summary="Get a batch",
        tag="batches",
        description="With `wait` the answer comes when the batch has ended, or after that time.",
        parameters=(
            BATCH_ID,
            Parameter(
                "wait",
                "query",
                f"Seconds to wait for its end; {MAX_WAIT_S} at most.",
                {"type": "number", "minimum": 0},
            ),
        ),
        answers={200: Answer("The batch.", BatchRecord)},
        problems={422: "`wait` is no number of seconds.", **_MISSING, **_AWAY},
    )
)
def show(batch_id: str) -> Response:
    having = services()
    wait_s = seconds("wait", MAX_WAIT_S)
    batch = _find(having, batch_id)
    if wait_s and not batch.status.terminal:
        g.waited = True
        wait_for_end(having, batch_id, wait_s)
        batch = _find(having, batch_id)
    return json_response(batch.public())


@blueprint.post("/<batch_id>/cancel")
@describe(
    Operation(
        summary="Cancel a batch",
        tag="batches",
        description="What is done is kept, what runs is canceled, and the rest is never begun. Canceling "
        "twice is no error.",
        parameters=(BATCH_ID,),
        answers={200: Answer("The batch: `cancelling`, and soon `cancelled`.", BatchRecord)},
        problems={409: "The batch had ended before.", **_MISSING, **_AWAY},
    )
)
def cancel(batch_id: str) -> Response:
    having = services()
    _find(having, batch_id)
    return json_response(having.backend.batches.cancel(batch_id).public())


@blueprint.post("/<batch_id>/resume")
@describe(
    Operation(
        summary="Take up a batch that has ended",
        tag="batches",
        description="A new batch of those lines of it that failed, that never came to an end, or both. "
        "Lines keep their numbers.",
        request_model=ResumeRequest,
        parameters=(BATCH_ID, _KEY),
        answers={
            201: Answer("The new batch; `resumes` names the old one.", BatchRecord, headers=("Location",)),
            200: Answer("The batch that an earlier request made under this key.", BatchRecord),
        },
        problems={
            400: "The body is no JSON that can be read.",
            409: "The batch has not ended.",
            410: "The batch made earlier under this key is gone.",
            413: "The body is too large.",
            415: "The body is no JSON.",
            422: "A field is wrong (`field` names it), or the key was used with another request.",
            **_MISSING,
            **_AWAY,
        },
    )
)
def resume(batch_id: str) -> Response:
    having = services()
    wanted = read_resume_request(request, having.settings)
    idempotency = keyed(request.headers.get(HEADER), wanted.model_dump() | {"resumes": batch_id})
    if (known := having.backend.batches.under(idempotency)) is not None:
        return _answer(known, False)
    old = _find(having, batch_id)
    spec = BatchSpec(
        input_key=old.spec.input_key,
        input_file_id=old.spec.input_file_id,
        endpoint=old.spec.endpoint,
        completion_window=old.spec.completion_window,
        metadata=old.spec.metadata,
        priority=old.spec.priority,
        webhook=old.spec.webhook,
        resumes=batch_id,
        only=wanted.only or "not_succeeded",
    )
    return _answer(
        *having.backend.batches.create(new_batch_id(), spec, old.input_bytes, idempotency=idempotency)
    )


@blueprint.get("/<batch_id>/output")
@describe(
    Operation(
        summary="Get the output of a batch",
        tag="batches",
        description="One line for each that has succeeded, in the order of the input. While the batch "
        "runs, as far as no line before is still to end.",
        parameters=(BATCH_ID,),
        answers={200: Answer("The lines.", media_types=(CONTENT_TYPE,))},
        problems={**_MISSING, **_AWAY},
    )
)
def output(batch_id: str) -> Response:
    return _lines(batch_id, "output")


@blueprint.get("/<batch_id>/errors")
@describe(
    Operation(
        summary="Get the errors of a batch",
        tag="batches",
        description="One line for each that has failed or was canceled, in the order of the input.",
        parameters=(BATCH_ID,),
        answers={200: Answer("The lines.", media_types=(CONTENT_TYPE,))},
        problems={**_MISSING, **_AWAY},
    )
)
def errors(batch_id: str) -> Response:
    return _lines(batch_id, "error")


@blueprint.get("/<batch_id>/webhooks")
@describe(
    Operation(
        summary="List a batch's webhooks and their tries",
        tag="webhooks",
        parameters=(BATCH_ID,),
        answers={200: Answer("Oldest first.", DeliveryList)},
        problems={**_MISSING, **_AWAY},
    )
)
def webhooks(batch_id: str) -> Response:
    having = services()
    _find(having, batch_id)
    deliveries = having.backend.deliveries.of_job(batch_id)
    return json_response({"data": [delivery.public() for delivery in deliveries]})


@blueprint.post("/<batch_id>/webhooks/<delivery_id>/replay")
@describe(
    Operation(
        summary="Send a batch's webhook again",
        tag="webhooks",
        description="Under the same `webhook-id` and with the same body, tried as if it were new.",
        parameters=(BATCH_ID, Parameter("delivery_id", "path", "The delivery's id.")),
        answers={202: Answer("It is due now.", Delivery)},
        problems={404: "There is no such batch, or no such delivery.", **_AWAY},
    )
)
def replay(batch_id: str, delivery_id: str) -> Response:
    having = services()
    _find(having, batch_id)
    return json_response(having.backend.deliveries.replay(batch_id, delivery_id).public(), 202)


def _made(
    having: Services, wanted: BatchRequest, file: StoredFile, idempotency: Idempotency | None
) -> Response:
    spec = BatchSpec(
        input_key=file.key,
        input_file_id=file.id or None,
        endpoint=wanted.endpoint,
        completion_window=wanted.completion_window,
        metadata=wanted.metadata,
        priority=wanted.priority,
        webhook=wanted.webhook.target() if wanted.webhook else None,
    )
    batch, made = having.backend.batches.create(new_batch_id(), spec, file.bytes, idempotency=idempotency)
    if not made and file.id not in ("", batch.spec.input_file_id) and wanted.input_file_id is None:
        take_back(having, file)
    return _answer(batch, made)


def _answer(batch: Batch, made: bool) -> Response:
    return json_response(batch.public(), 201 if made else 200, {"Location": f"/v1/batches/{batch.id}"})


def _input(having: Services, wanted: BatchRequest) -> StoredFile:
    """What the request names; an object of the store has no id."""
    if wanted.input_file_id:
        return find_file(having, wanted.input_file_id, "input_file_id")
    key = named_object(wanted.input or "", having.settings, "input")
    size = having.backend.objects.size(key)
    if size is None:
        # As for one that may not be named: nobody learns which there are.
        raise StagewaveError(ErrorCode.URL_NOT_ALLOWED, "this object may not be named", field="input")
    return StoredFile("", key, size, "", "batch", 0.0)


def _find(having: Services, batch_id: str) -> Batch:
    if not is_batch_id(batch_id):
        raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such batch")
    return having.backend.batches.get(batch_id)


def _lines(batch_id: str, kind: Kind) -> Response:
    having = services()
    batch = _find(having, batch_id)
    blocks = read_output(having.backend, batch, kind)
    # The first block before the answer begins: what is wrong by then can still be said.
    first = next(blocks, b"")
    response = Response(_cut_short(chain([first], blocks)), content_type=CONTENT_TYPE)
    response.headers["Cache-Control"] = "no-store"
    return response


def _cut_short(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cuts the connection when the rest does not come, so that nobody takes the part for the whole."""
    try:
        yield from blocks
    except StagewaveError:
        raise StreamCut from None
