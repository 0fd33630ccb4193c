"""Jobs: what each call about them sends, and how its answer is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict
from uuid import uuid4

from stagewave.client.call import Call, Plan, Upload, form_of, given, path_of
from stagewave.client.waiting import looking, until_finished
from stagewave.errors import NotFound
from stagewave.record import Job, JsonObject, Page

JobType = Literal["asr", "tts", "s2st"]
JobStatus = Literal["queued", "running", "succeeded", "failed", "canceled"]
AudioFormat = Literal["wav", "pcm", "flac", "mp3", "opus"]
TranscriptFormat = Literal["text", "json", "srt", "vtt"]

IDEMPOTENCY = "Idempotency-Key"
_URLS = ("http://", "https://", "data:", "s3://")


class JobOptions(TypedDict, total=False):
    """What a job may ask for besides its text or audio: the fields of ``POST /v1/jobs``. None is as if it
    were not there."""

    model: str | None
    voice: str | None
    language: str | None
    target_language: str | None
    instructions: str | None
    response_format: AudioFormat | None
    word_timestamps: bool | None
    keep_timing: bool | None
    mode: Literal["auto", "async_chunk", "sequential"] | None
    live: bool | None
    priority: int | None
    seed: int | None
    sampling_params_list: list[dict[str, float]] | None
    deadline_s: float | None
    metadata: JsonObject | None
    webhook: JsonObject | None


class JobFilters(TypedDict, total=False):
    """Which jobs to list, and how many a page."""

    status: JobStatus | None
    type: JobType | None
    batch: str | None
    after: str | None
    limit: int | None


def submit(
    kind: JobType,
    text: str | None,
    audio: Path | bytes | str | None,
    idempotency_key: str | None,
    options: JobOptions,
) -> Plan[Job]:
    fields = given({"text": text, **options, "type": kind})
    headers = {IDEMPOTENCY: idempotency_key or new_key()}
    if isinstance(audio, str):
        if not audio.startswith(_URLS):
            raise ValueError("audio that is a str is an http, https, data or s3 URL; a file is a Path")
        fields["audio_url"] = audio
    if audio is None or isinstance(audio, str):
        answer = yield Call(method="POST", path="/v1/jobs", headers=headers, json=fields)
    else:
        answer = yield Call(
            method="POST", path="/v1/jobs", headers=headers, form=form_of(fields), file=Upload.of(audio)
        )
    return Job(answer.json())


def new_key() -> str:
    """A key for one request, however often it is sent: a second try makes no second job."""
    return str(uuid4())


def get(job_id: str, wait_s: float) -> Plan[Job]:
    return Job((yield looking(path_of("jobs", job_id), wait_s)).json())


def wait(job_id: str, timeout_s: float | None) -> Plan[Job]:
    return (yield from until_finished(path_of("jobs", job_id), Job, timeout_s))


def page(filters: JobFilters) -> Plan[Page[Job]]:
    params = {name: str(value) for name, value in given(filters).items()}
    found = (yield Call(method="GET", path="/v1/jobs", params=params)).json()
    return Page(tuple(Job(record) for record in found["data"]), found["next_cursor"])


def cancel(job_id: str) -> Plan[Job]:
    return Job((yield Call(method="POST", path=path_of("jobs", job_id, "cancel"))).json())


def delete(job_id: str) -> Plan[None]:
    try:
        yield Call(method="DELETE", path=path_of("jobs", job_id))
    except NotFound as error:
        if error.code != "gone":  # an earlier try has deleted it, though its answer was lost
            raise


def transcript(job_id: str, form: TranscriptFormat) -> Plan[bytes]:
    answer = yield Call(method="GET", path=path_of("jobs", job_id, "transcript"), params={"format": form})
    return answer.body


def audio(job_id: str, form: AudioFormat | None) -> Plan[bytes]:
    yield from wait(job_id, None)  # what is asked for before the end is cut off should the job fail
    return (yield listening(job_id, form)).body


def listening(job_id: str, form: AudioFormat | None) -> Call:
    """The call whose answer is the audio, live while it is made."""
    params = {"format": form} if form else {}
    return Call(method="GET", path=path_of("jobs", job_id, "audio"), params=params)
