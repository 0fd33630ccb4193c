"""``/v1/jobs``: make a job, look at it, list, cancel, delete."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from flask import Blueprint, Response, g, request

from api.idempotency import HEADER, idempotency_of
from api.job_body import read_job_request
from api.json_response import json_response
from api.operation import Answer, Operation, Parameter, describe
from api.prefer import preferred_wait_s
from api.query import bad_parameter, choice, link_to_next, seconds, whole
from api.records import JobList, JobRecord
from api.services import Services, services
from api.waiting_room import TICK_S
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers.events import START
from workers.idempotency import Idempotency
from workers.input_audio import NamedOrSent, SentBytes
from workers.job import AudioSource, Job, JobSpec, is_job_id, new_job_id
from workers.job_request import JobRequest, UploadForm, check_rules, spec_of
from workers.results import input_key, remove_objects
from workers.states import Status
from workers.submit import submit
from workers.voice_lookup import check_voice

blueprint = Blueprint("jobs", __name__, url_prefix="/v1/jobs")

MAX_WAIT_S = 60
_BATCH_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
_TYPES = ("asr", "tts", "s2st")

JOB_ID = Parameter("job_id", "path", "The job's id: `job_` and a ULID.")
_MISSING = {404: "There is no such job.", 410: "The job was deleted."}
_AWAY = {503: "The queue or the object store cannot be reached; `Retry-After` says when to try again."}


@blueprint.post("")
@describe(
    Operation(
        summary="Create a job",
        tag="jobs",
        description="As JSON, or as a multipart form with the audio in the part `file`.",
        request_model=JobRequest,
        form_model=UploadForm,
        parameters=(
            Parameter(HEADER, "header", "The same key and the same request make one job, for a day."),
        ),
        answers={
            201: Answer("The job, queued.", JobRecord, headers=("Location",)),
            200: Answer(
                "The job that an earlier request made under this key.", JobRecord, headers=("Location",)
            ),
        },
        problems={
            400: "The body is no JSON, or no form, that can be read.",
            410: "The job made earlier under this key was deleted.",
            413: "The body, or the audio in it, is too large.",
            415: "The body is neither JSON nor a multipart form.",
            422: "A field is wrong (`field` names it), or the key was used with another request.",
            429: "The queue is full; `Retry-After` says when to try again.",
            **_AWAY,
        },
    )
)
def create() -> Response:
    having = services()
    wanted, audio = read_job_request(request, having.settings)
    deploy = having.deploy_for(wanted.model, Task(wanted.type))
    check_rules(wanted, deploy, having.settings)
    check_voice(having.backend, deploy, wanted.voice)
    idempotency = idempotency_of(request.headers.get(HEADER), wanted, audio)
    job, made = submit_with_audio(having, spec_of(wanted, deploy, None), audio, idempotency)
    return json_response(job.public(), 201 if made else 200, {"Location": f"/v1/jobs/{job.id}"})


@blueprint.get("")
@describe(
    Operation(
        summary="List jobs, newest first",
        tag="jobs",
        parameters=(
            Parameter("status", "query", "Only these.", {"type": "string", "enum": list(Status)}),
            Parameter("type", "query", "Only these.", {"type": "string", "enum": list(_TYPES)}),
            Parameter("batch", "query", "Only those of this batch."),
            Parameter("after", "query", "`next_cursor` of the page before."),
            Parameter("limit", "query", "Jobs a page.", {"type": "integer", "minimum": 1, "maximum": 100}),
        ),
        answers={200: Answer("One page.", JobList, headers=("Link",))},
        problems={422: "A parameter is wrong (`field` names it).", **_AWAY},
    )
)
def index() -> Response:
    after = request.args.get("after")
    if after is not None and not is_job_id(after):
        raise bad_parameter("after", "this is no cursor that was given out here")
    batch = request.args.get("batch")
    if batch is not None and not _BATCH_ID.fullmatch(batch):
        raise bad_parameter("batch", "this is no batch id")
    jobs, cursor = services().backend.jobs.page(
        status=choice("status", tuple(Status)),
        type=choice("type", _TYPES),
        batch=batch,
        after=after,
        limit=whole("limit", 20, 1, 100),
    )
    return json_response(
        {"data": [job.public() for job in jobs], "next_cursor": cursor}, headers=link_to_next(cursor)
    )


@blueprint.get("/<job_id>")
@describe(
    Operation(
        summary="Get a job",
        tag="jobs",
        description="With `wait` the answer comes when the job has ended, or after that time with the job "
        "as it then is. When too many wait already, it comes at once.",
        parameters=(
            JOB_ID,
            Parameter(
                "wait",
                "query",
                f"Seconds to wait for the job's end; {MAX_WAIT_S} at most.",
                {"type": "number", "minimum": 0},
            ),
            Parameter("Prefer", "header", "`wait=N` does the same (RFC 7240)."),
        ),
        answers={200: Answer("The job.", JobRecord, headers=("Preference-Applied",))},
        problems={422: "`wait` is no number of seconds.", **_MISSING, **_AWAY},
    )
)
def show(job_id: str) -> Response:
    having = services()
    asked_s = seconds("wait", MAX_WAIT_S)
    headers = {}
    if asked_s is None and (preferred := preferred_wait_s(request.headers.get("Prefer", ""))) is not None:
        asked_s = min(preferred, MAX_WAIT_S)
        headers["Preference-Applied"] = f"wait={asked_s}"
    job = find_job(having, job_id)
    if asked_s and not job.status.terminal:
        g.waited = True
        wait_for_end(having, job_id, asked_s)
        job = having.backend.jobs.get(job_id)
    return json_response(job.public(), headers=headers)


@blueprint.post("/<job_id>/cancel")
@describe(
    Operation(
        summary="Cancel a job",
        tag="jobs",
        description="Whatever runs for it stops within a second. Canceling twice is no error.",
        parameters=(JOB_ID,),
        answers={200: Answer("The job, canceled.", JobRecord)},
        problems={409: "The job had ended before.", **_MISSING, **_AWAY},
    )
)
def cancel(job_id: str) -> Response:
    having = services()
    find_job(having, job_id)
    return json_response(having.backend.jobs.cancel(job_id).public())


@blueprint.delete("/<job_id>")
@describe(
    Operation(
        summary="Delete a job",
        tag="jobs",
        description="Cancels it if it has not ended, and removes the record, the audio and the transcript.",
        parameters=(JOB_ID,),
        answers={204: Answer("It is gone.")},
        problems={**_MISSING, **_AWAY},
    )
)
def delete(job_id: str) -> Response:
    backend = services().backend
    _check_id(job_id)
    try:
        backend.jobs.delete(job_id)
    except StagewaveError as error:
        if error.code is ErrorCode.GONE:  # an earlier try may have failed between record and objects
            remove_objects(backend.objects, job_id)
        raise
    remove_objects(backend.objects, job_id)
    return Response(status=204)


def find_job(having: Services, job_id: str) -> Job:
    """Raises ``not_found`` or ``gone``."""
    _check_id(job_id)
    return having.backend.jobs.get(job_id)


def _check_id(job_id: str) -> None:
    if not is_job_id(job_id):
        raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such job")


def submit_with_audio(
    having: Services, spec: JobSpec, audio: NamedOrSent | None, idempotency: Idempotency | None = None
) -> tuple[Job, bool]:
    """Make the job that ``spec`` and ``audio`` describe, with what was sent in the object store. False: an
    earlier job stands under this key. Raises as ``workers.submit``, and ``gone``."""
    job_id = new_job_id()
    spec = replace(spec, audio=_stored(having, job_id, audio))
    try:
        job, made = submit(having.backend, job_id, spec, idempotency)
    except StagewaveError as error:
        if isinstance(audio, SentBytes):
            _take_back(having, job_id)
        if error.code is ErrorCode.NOT_FOUND:  # a key outlives the job that was made under it
            raise StagewaveError(ErrorCode.GONE, "the job made under this key is gone") from None
        raise
    if not made and isinstance(audio, SentBytes):
        _take_back(having, job_id)
    return job, made


def _stored(having: Services, job_id: str, audio: NamedOrSent | None) -> AudioSource | None:
    """Where workers find the audio; what came with the request is in the object store before there is
    a job that could ask for it."""
    if not isinstance(audio, SentBytes):
        return audio
    key = input_key(job_id)
    having.backend.objects.put_file(key, audio.stream, "application/octet-stream")
    return AudioSource("upload", key=key, size_bytes=audio.size_bytes)


def _take_back(having: Services, job_id: str) -> None:
    """Remove what was sent for a job that was not made. A broker that went away in the middle may have made
    it all the same; then it needs its audio, and while nobody can tell, the janitor's turn comes."""
    try:
        having.backend.jobs.get(job_id)
    except StagewaveError as error:
        if error.code is ErrorCode.NOT_FOUND:
            having.backend.objects.delete(input_key(job_id))


def wait_for_end(having: Services, job_id: str, wait_s: float) -> None:
    """Return when the job (or batch) has ended, when the time is over, or when nobody waits any more."""
    deadline = time.monotonic() + wait_s
    after = START
    with having.room.seated() as seat:
        while seat is not None and not seat.over and (left_s := deadline - time.monotonic()) > 0:
            heartbeat_s = min(TICK_S, left_s)
            for event in having.backend.events.follow(job_id, after, heartbeat_s):
                if event is None:
                    break
                if event.terminal:
                    return
                after = event.id
                # A job that tells of its progress gives no heartbeat; and the last one is a shorter one.
                if deadline - time.monotonic() < heartbeat_s:
                    break
            else:
                return
