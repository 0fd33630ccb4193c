"""``/v1/jobs/{id}/transcript``: what was said, as JSON, text or subtitles."""

from __future__ import annotations

import json

from flask import Blueprint, Response

from api.jobs import JOB_ID, find_job
from api.json_response import json_response
from api.operation import Answer, Operation, Parameter, describe
from api.query import choice
from api.records import Transcript
from api.services import Services, services
from stage_pipeline.audio.transcript import segments_from_json, to_srt, to_text, to_vtt
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.job import Job, JsonObject

blueprint = Blueprint("transcript", __name__, url_prefix="/v1/jobs")

_MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
_FORMATS = ("json", *_MEDIA_TYPES)


@blueprint.get("/<job_id>/transcript")
@describe(
    Operation(
        summary="Get a transcript",
        tag="listening",
        description="Of ASR and S2ST jobs: what was heard, with times.",
        parameters=(
            JOB_ID,
            Parameter("format", "query", "`json` if unset.", {"type": "string", "enum": list(_FORMATS)}),
        ),
        answers={
            200: Answer(
                "The transcript.",
                Transcript,
                media_types=("text/plain", "application/x-subrip", "text/vtt"),
            )
        },
        problems={
            404: "There is no such job, or it has no transcript.",
            409: "The job has not ended.",
            410: "The job was deleted.",
            422: "`format` is none that there is.",
            503: "The queue or the object store cannot be reached.",
        },
    )
)
def show(job_id: str) -> Response:
    having = services()
    wanted = choice("format", _FORMATS, "json")
    job = find_job(having, job_id)
    transcript = stored_transcript(having, job)
    if wanted not in _MEDIA_TYPES:
        return json_response(transcript)
    segments = segments_from_json(transcript)
    if wanted == "srt":
        body = to_srt(segments)
    elif wanted == "vtt":
        body = to_vtt(segments)
    else:
        body = to_text(segments) or f"{transcript['text']}\n"
    return Response(body, content_type=_MEDIA_TYPES[wanted], headers={"Cache-Control": "no-store"})


def stored_transcript(having: Services, job: Job) -> JsonObject:
    """The transcript object. Raises ``not_ready``, and ``not_found`` for a job that has none."""
    if not job.status.terminal:
        raise StagewaveError(ErrorCode.NOT_READY, "the job has not ended yet", retry_after_s=1)
    key = (job.result or {}).get("transcript_key")
    if not isinstance(key, str):
        raise StagewaveError(ErrorCode.NOT_FOUND, "this job has no transcript")
    with having.backend.objects.open(key) as found:
        transcript: JsonObject = json.loads(b"".join(found.iter_chunks()))
    return transcript
