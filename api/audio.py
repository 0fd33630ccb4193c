"""``/v1/jobs/{id}/audio``: the audio, live while it is made, and a file with ranges once it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from flask import Blueprint, Response, g, request

from api.accept import accepted_format
from api.byte_range import Unsatisfiable, wanted_range
from api.disposition import content_disposition, safe_name
from api.jobs import JOB_ID, find_job
from api.operation import Answer, Operation, Parameter, describe
from api.problems import problem
from api.query import choice
from api.services import Services, services
from api.spoken import Pcm, StoredAudio, StreamCut, live_pcm, stored_audio, stored_pcm
from api.waiting_room import Seat
from stage_pipeline.audio.encode import Encoder, open_encoder
from stage_pipeline.audio.formats import AUDIO_FORMATS, PCM
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers.job import Job

blueprint = Blueprint("audio", __name__, url_prefix="/v1/jobs")

_MEDIA_TYPES = ("audio/wav", "audio/pcm", "audio/flac", "audio/mpeg", "audio/ogg")


@blueprint.get("/<job_id>/audio")
@describe(
    Operation(
        summary="Listen to a job, or fetch its audio",
        tag="listening",
        description="While the job is queued or runs, the audio comes as it is made, and asking for it "
        "makes an `auto` job speak as soon as it can. Should the job fail half way, the connection is cut, "
        "so that no client takes the part for the whole. Once it has succeeded, this is a file.",
        parameters=(
            JOB_ID,
            Parameter(
                "format",
                "query",
                "Another format than the job's own; of a finished job without ranges. Unset: by `Accept`.",
                {"type": "string", "enum": list(AUDIO_FORMATS)},
            ),
            Parameter("Accept", "header", "The audio types that can be played; the job's own goes first."),
            Parameter("filename", "query", "A name to save it under; its extension follows the format."),
            Parameter("Range", "header", "One range of bytes, of a finished job."),
            Parameter("If-Range", "header", "The `ETag` that the range is meant for."),
            Parameter("If-None-Match", "header", "The `ETag` that is there already."),
        ),
        answers={
            200: Answer("The audio.", media_types=_MEDIA_TYPES, headers=("ETag",)),
            206: Answer("The range.", media_types=_MEDIA_TYPES, headers=("Content-Range", "ETag")),
            304: Answer("It is the one that is there already.", headers=("ETag",)),
        },
        problems={
            404: "There is no such job, or it has no audio.",
            406: "`Accept` names no type that there is.",
            409: "The server stops, and the audio had not begun.",
            410: "The job was deleted.",
            416: "The range lies outside the audio.",
            422: "`format` is none that there is.",
            503: "Too many clients listen, or queue or object store cannot be reached.",
        },
    )
)
def listen(job_id: str) -> Response:
    having = services()
    asked = choice("format", AUDIO_FORMATS)
    job = find_job(having, job_id)
    stored = stored_audio(job)
    if stored is None and job.spec.type is not Task.ASR and not job.status.terminal:
        wanted = asked or _accepted(job.spec.response_format)
        if request.method == "HEAD":
            return _headed(Response(), wanted, job)
        g.waited = True
        live = _live(having, job, wanted)
        if live is not None:
            return live
        job = having.backend.jobs.get(job_id)
        stored = stored_audio(job)
    if stored is None:
        if job.status.terminal or job.spec.type is Task.ASR:
            raise StagewaveError(ErrorCode.NOT_FOUND, "this job has no audio")
        raise StagewaveError(ErrorCode.NOT_READY, "the audio has not begun yet", retry_after_s=1)
    wanted = asked or _accepted(stored.format)
    if wanted != stored.format:
        return _transcoded(having, job, stored, wanted)
    return _file(having, job, stored)


def _accepted(own: str) -> str:
    form = accepted_format(request.accept_mimetypes, own)
    if form is None:
        raise StagewaveError(ErrorCode.NOT_ACCEPTABLE, "no audio type is offered that the client accepts")
    return form


def _live(having: Services, job: Job, wanted: str) -> Response | None:
    """The audio as it is made, from its first packet on; None when none came before the job's end."""
    seat = having.room.sit_or_refuse()
    try:
        having.backend.jobs.mark_listening(job.id)
        pieces = live_pcm(having, job.id, seat)
        return _streamed(job, wanted, next(pieces), pieces, seat)
    except (StreamCut, StopIteration):
        seat.leave()
        return None
    except BaseException:
        seat.leave()
        raise


def _transcoded(having: Services, job: Job, stored: StoredAudio, wanted: str) -> Response:
    """Finished audio in another format; as costly as listening, so it takes a seat too."""
    if request.method == "HEAD":
        return _headed(Response(), wanted, job, stored.rate_hz)
    seat = having.room.sit_or_refuse()
    try:
        pieces = stored_pcm(having, stored)
        return _streamed(job, wanted, next(pieces), pieces, seat)
    except BaseException:
        seat.leave()
        raise


def _streamed(job: Job, wanted: str, first: Pcm, pieces: Iterator[Pcm], seat: Seat) -> Response:
    response = Response(_encoded(open_encoder(wanted, first.rate_hz), first, pieces))
    response.call_on_close(seat.leave)
    response.headers["X-Accel-Buffering"] = "no"
    return _headed(response, wanted, job, first.rate_hz)


def _encoded(encoder: Encoder, first: Pcm, pieces: Iterator[Pcm]) -> Iterator[bytes]:
    """Raises in the middle when the rest does not come: the server then cuts the connection."""
    try:
        yield encoder.write(first.data)
        for piece in pieces:
            yield encoder.write(piece.data)
    except StagewaveError:
        raise StreamCut from None
    finally:
        end = encoder.close()  # also when the listener leaves: a codec holds memory of its own
    yield end


def _file(having: Services, job: Job, stored: StoredAudio) -> Response:
    etag = hashlib.sha256(stored.key.encode()).hexdigest()[:24]
    response = Response()
    _headed(response, stored.format, job, stored.rate_hz)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Cache-Control"] = "private, no-cache"
    response.set_etag(etag)
    if request.if_none_match.contains(etag):
        response.status_code = 304
        return response
    total = stored.size_bytes
    try:
        part = wanted_range(request, total, etag) if request.method == "GET" else None
    except Unsatisfiable:
        refusal = problem(ErrorCode.RANGE_NOT_SATISFIABLE, "the audio does not have these bytes")
        refusal.headers["Content-Range"] = f"bytes */{total}"
        return refusal
    response.headers["Content-Length"] = str(part.length if part else total)
    if part is not None:
        response.status_code = 206
        response.headers["Content-Range"] = part.content_range
    if request.method == "GET":
        # A client that takes its time holds a thread, as one does that waits.
        seat = having.room.sit_or_refuse()
        try:
            found = having.backend.objects.open(stored.key, (part.start, part.stop) if part else None)
        except BaseException:
            seat.leave()
            raise
        response.response = found.iter_chunks()
        response.call_on_close(found.close)
        response.call_on_close(seat.leave)
    return response


def _headed(response: Response, form: str, job: Job, rate_hz: int | None = None) -> Response:
    name = request.args.get("filename")
    safe = safe_name(name or "", job.id, AUDIO_FORMATS[form].extension)
    response.content_type = AUDIO_FORMATS[form].content_type
    if form == PCM.name and rate_hz is not None:
        response.content_type += f";rate={rate_hz}"  # nothing in the bytes tells
    response.headers["Content-Disposition"] = content_disposition(safe, download=name is not None)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Vary"] = "Accept"
    return response
