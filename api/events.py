"""``/v1/jobs/{id}/events``: what becomes of a job, as server-sent events."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

from flask import Blueprint, Response, g, request

from api.jobs import JOB_ID, find_job
from api.operation import Answer, Operation, Parameter, describe
from api.query import bad_parameter
from api.services import services
from api.waiting_room import TICK_S, Seat
from stage_pipeline.errors import StagewaveError
from workers.events import START, Event, EventLog

blueprint = Blueprint("events", __name__, url_prefix="/v1/jobs")

HEARTBEAT_S = 15.0
"""Below the 30 to 60 s after which proxies take a silent connection for dead."""
_RECONNECT_MS = 1000
_EVENT_ID = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")
"""Milliseconds and a count: shorter than what overflows 64 bits."""


@blueprint.get("/<job_id>/events")
@describe(
    Operation(
        summary="Follow a job",
        tag="listening",
        description="Events `status`, `stage`, `text`, `progress`, `segment`, `first_audio`, `restart`, "
        "and as the last one `succeeded`, `failed` or `canceled`; each with JSON data. All events from the "
        "start come first; `Last-Event-ID` resumes after the one it names. A comment comes when nothing "
        "else has for 15 s. Of a job that is deleted meanwhile the last event is `canceled`, or how it had "
        "ended. Resuming after the last event answers 204, which stops an EventSource.",
        parameters=(
            JOB_ID,
            Parameter("Last-Event-ID", "header", "Resume after this event."),
            Parameter("last_event_id", "query", "The same, for clients that cannot set headers."),
        ),
        answers={
            200: Answer("The events.", media_types=("text/event-stream",)),
            204: Answer("The job has ended, and there is nothing after that event."),
        },
        problems={
            404: "There is no such job.",
            410: "The job was deleted.",
            422: "This is no id of an event.",
            503: "Too many clients listen, or the queue cannot be reached.",
        },
    )
)
def follow(job_id: str) -> Response:
    having = services()
    job = find_job(having, job_id)
    after = request.headers.get("Last-Event-ID") or request.args.get("last_event_id") or START
    if not _EVENT_ID.fullmatch(after):
        raise bad_parameter("Last-Event-ID", "this is no id of an event")
    log = having.backend.events
    if job.status.terminal and not log.read(job_id, after, limit=1):
        return Response(status=204)
    response = Response(content_type="text/event-stream; charset=utf-8")
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"
    if request.method == "HEAD":
        return response
    g.waited = True
    seat = having.room.sit_or_refuse()
    response.response = _lines(log, job_id, after, seat)
    response.call_on_close(seat.leave)
    return response


def _lines(log: EventLog, job_id: str, after: str, seat: Seat) -> Iterator[bytes]:
    yield f"retry: {_RECONNECT_MS}\n\n".encode()
    spoke = time.monotonic()
    try:
        for event in log.follow(job_id, after, heartbeat_s=TICK_S):
            if event is not None:
                yield _line(event)
            elif seat.over:
                return
            elif time.monotonic() - spoke < HEARTBEAT_S:
                continue
            else:
                yield b": still here\n\n"
            spoke = time.monotonic()
    except StagewaveError:
        return  # the broker is away: an EventSource comes back by itself, and resumes


def _line(event: Event) -> bytes:
    # One data line holds it all: JSON escapes line breaks, and in ASCII also those (U+2028, U+0085) that
    # are none to the standard, but to many a client's line splitter.
    data = json.dumps(event.data, ensure_ascii=True, separators=(",", ":"))
    return f"id: {event.id}\nevent: {event.name}\ndata: {data}\n\n".encode()
