"""One OpenAI-style request and its job: made, waited for, and canceled when its client goes away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from flask import Response, g, request
from pydantic import JsonValue

from api.idempotency import HEADER, idempotency_of
from api.jobs import submit_with_audio
from api.operation import Parameter
from api.services import Services
from api.spoken import Pcm, StoredAudio, StreamCut, live_beats, stored_audio, stored_pcm
from api.waiting_room import TICK_S, Seat
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task
from workers.events import START, Event
from workers.input_audio import NamedOrSent
from workers.job import Job
from workers.job_request import check_rules, parse_request, spec_of
from workers.states import Status
from workers.voice_lookup import check_voice

JOB_HEADER = "x-job-id"
STAY_HEADER = "X-Job-Stay"
STAY = Parameter(
    STAY_HEADER,
    "header",
    "`true`: the job goes on when the client leaves. Else it is canceled, unless there is a key.",
    {"type": "string", "enum": ["true", "false"]},
)
KEY = Parameter(HEADER, "header", "The same key and the same request make one job, for a day.")
PROBLEMS = {
    400: "A field is wrong, or asks for what this server cannot do (`param` names it).",
    404: "That model is not served here.",
    410: "The job was canceled or deleted meanwhile.",
    413: "The body is too large.",
    415: "The body has another type than this path takes.",
    429: "The queue is full; `Retry-After` says when to try again.",
    503: "Too many clients wait, queue or object store are away, or the job did not end by its deadline.",
}
_CODES = {code.code: code for code in ErrorCode}
_GONE_FOR_US = (ErrorCode.NOT_FOUND, ErrorCode.GONE)


class Call:
    """The job of the current request, and its seat in the waiting room. As a context, or with ``close``,
    it gives the seat back, and cancels the job unless it has ended or was asked to stay."""

    def __init__(self, having: Services, job: Job, seat: Seat, *, stays: bool) -> None:
        self.job = job
        self._having = having
        self._seat = seat
        self._let_be = stays

    def wait(self) -> Job:
        """The job once it has succeeded; raises the error that it failed with."""
        for _ in self.events():
            pass
        return self.succeeded()

    def events(self) -> Iterator[Event | None]:
        """All of the job's events, to the last one; None when none came for a while."""
        for event in self._having.backend.events.follow(self.job.id, START, heartbeat_s=TICK_S):
            if event is None:
                self._check_awaited()
            yield event

    def new_events(self, after: str) -> list[Event]:
        """What there is after an event, without waiting."""
        return self._having.backend.events.read(self.job.id, after)

    def pcm(self) -> Iterator[Pcm | None]:
        """The audio as it is made, from its first sample; None when none came for a while. Raises the error
        that the job failed with."""
        sent = False
        try:
            for pcm in live_beats(self._having, self.job.id, self._seat):
                sent = sent or pcm is not None
                yield pcm
        except StreamCut:
            self._check_awaited()
            stored = stored_audio(self.succeeded())
            if sent or stored is None:
                raise StagewaveError(ErrorCode.INTERNAL, "the audio could not be followed") from None
            yield from stored_pcm(self._having, stored)
        self._let_be = True

    def succeeded(self) -> Job:
        """The job, which must have ended; raises the error that it failed with."""
        try:
            job = self._having.backend.jobs.get(self.job.id)
        except StagewaveError as error:
            if error.code in _GONE_FOR_US:
                raise StagewaveError(
                    ErrorCode.GONE, "the job was deleted while it was waited for"
                ) from None
            raise
        self._let_be = self._let_be or job.status.terminal
        if job.status is Status.FAILED and job.error is not None:
            code = _CODES.get(str(job.error["code"]), ErrorCode.INTERNAL)
            raise StagewaveError(code, str(job.error["message"]))
        if job.status is not Status.SUCCEEDED:
            raise StagewaveError(ErrorCode.GONE, "the job was canceled while it was waited for")
        return job

    def close(self) -> None:
        """More than once does no harm."""
        self._seat.leave()
        if self._let_be:
            return
        self._let_be = True
        try:
            self._having.backend.jobs.cancel(self.job.id)
        except StagewaveError:
            pass  # it ended first, or the broker is away: then it goes its way

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_awaited(self) -> None:
        """Whether the server stops, or the client has gone (who then does not read this)."""
        if self._seat.over:
            raise StagewaveError(ErrorCode.TOO_MANY_WAITERS, "the server stops: try again")


def start_call(
    having: Services,
    fields: Mapping[str, JsonValue],
    audio: NamedOrSent | None = None,
    *,
    translate: bool = False,
) -> Call:
    """Check, take a seat, and make the job of these fields of a ``JobRequest``; what is None is unset.
    ``translate``: into English, of a job that only hears."""
    key = request.headers.get(HEADER)
    stays = _asked_to_stay(key)
    wanted = parse_request({k: v for k, v in fields.items() if v is not None}, from_form=False)
    deploy = having.deploy_for(wanted.model, Task(wanted.type))
    check_rules(wanted, deploy, having.settings)
    check_voice(having.backend, deploy, wanted.voice)
    spec = spec_of(wanted, deploy, None)
    if translate:
        spec = replace(spec, target_language="en")
    idempotency = idempotency_of(key, wanted, audio, request.path)
    g.waited = True
    seat = having.room.sit_or_refuse()
    try:
        job, _ = submit_with_audio(having, spec, audio, idempotency)
    except BaseException:
        seat.leave()
        raise
    g.job_id = job.id
    return Call(having, job, seat, stays=stays)


def spoken_file(job: Job) -> StoredAudio:
    """The audio of a job that has succeeded; it was made to speak, so it has some."""
    stored = stored_audio(job)
    if stored is None:
        raise StagewaveError(ErrorCode.NO_AUDIO, "the job made no audio")
    return stored


def tokens_used(job: Job, kind: str) -> int:
    """``prompt``, ``text`` or ``audio`` tokens of a job that has ended."""
    return int(str(job.usage.get(f"{kind}_tokens") or 0))


def with_job_id(response: Response) -> Response:
    """After each request: which job it was."""
    if (job_id := g.get("job_id")) is not None:
        response.headers[JOB_HEADER] = job_id
    return response


def _asked_to_stay(key: str | None) -> bool:
    """A client with a key means to come back: then it must find its job."""
    given = request.headers.get(STAY_HEADER, "false" if key is None else "true").strip().lower()
    if given not in ("true", "false"):
        raise StagewaveError(ErrorCode.INVALID_REQUEST, "it must be true or false", field=STAY_HEADER)
    return given == "true"
