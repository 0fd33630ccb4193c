"""``/v1/voices``: voices that clients make of a recording, and those that the server has of its own."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field
from werkzeug.datastructures import MultiDict

from api.accept import accepted_format
from api.disposition import content_disposition, safe_name
from api.job_body import read_form
from api.json_response import json_response
from api.operation import Answer, Operation, Parameter, describe
from api.query import bad_parameter, choice, link_to_next, whole
from api.records import VoiceList, VoiceRecord
from api.services import Services, services
from stage_pipeline.audio.encode import open_encoder
from stage_pipeline.audio.formats import AUDIO_FORMATS, PCM, WAV
from stage_pipeline.audio.wav_header import WAV_HEADER_BYTES, wav_header
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Task, no_new_voices
from stage_pipeline.voice_prompt import PROMPT_RATE_HZ, Prompt, read_prompt
from workers.input_audio import sent_file
from workers.job import JsonObject
from workers.results import remove_voice
from workers.states import Stage, pool_of
from workers.voice import (
    NAME_CHARS,
    NewVoice,
    Voice,
    clean_name,
    is_voice_id,
    new_voice_id,
    prompt_key,
    voice_prefix,
)
from workers.voice_lookup import built_in_voices

blueprint = Blueprint("voices", __name__, url_prefix="/v1/voices")

_NAME = Parameter("name", "path", "The voice's name.")
_MODEL = Parameter("model", "query", "Of this model. Unset: the one that speaks here.")
_AWAY = {503: "The queue or the object store cannot be reached; `Retry-After` says when to try again."}
_MISSING = {404: "There is no such voice."}
_MEDIA_TYPES = ("audio/wav", "audio/pcm", "audio/flac", "audio/mpeg", "audio/ogg")


class VoiceForm(BaseModel):
    """A voice to make: its name, and the recording as the part ``file``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        min_length=1,
        max_length=NAME_CHARS,
        description="Letters and digits of any script; between them spaces, dots, hyphens, underscores.",
    )
    model: str | None = Field(default=None, description="Unset: the model that speaks here.")
    file: bytes = Field(
        description="3 to 10 s of one clear voice are best.", json_schema_extra={"format": "binary"}
    )


@blueprint.post("")
@describe(
    Operation(
        summary="Make a voice",
        tag="voices",
        description="The recording is checked at once, and prepared once by a worker: `status` is "
        "`preparing`, then `ready` or `failed`. Jobs may name the voice from now on. The same recording "
        "under the same name is the same voice.",
        form_model=VoiceForm,
        answers={
            201: Answer("The voice, to be prepared.", VoiceRecord, headers=("Location",)),
            200: Answer(
                "The voice that this recording has made before.", VoiceRecord, headers=("Location",)
            ),
        },
        problems={
            400: "The body is no form that can be read.",
            409: "Another voice has this name, or there are too many.",
            413: "The recording is too large.",
            415: "The body is no multipart form.",
            422: "Name or recording cannot be used (`code` says why), or this model takes no voices.",
            **_AWAY,
        },
    )
)
def create() -> Response:
    having = services()
    form, file = read_form(request, having.settings)
    name, model = _fields(form)
    deploy = _deploy(having, model)
    if not deploy.takes_voices:
        raise no_new_voices()
    if name in built_in_voices(having.backend, deploy):
        raise StagewaveError(
            ErrorCode.VOICE_EXISTS, "a voice of the server's own has this name", field="name"
        )
    if file is None:
        raise StagewaveError(ErrorCode.INVALID_MULTIPART, "there is no part with the audio", field="file")
    sent_file(file.stream, file.filename, having.settings)
    prompt = read_prompt(file.stream, "file", deploy.limits.voice_s)  # type: ignore[arg-type]  # any seekable binary file will do
    voice, made = _make(having, deploy, name, prompt)
    return json_response(
        voice.public(), 201 if made else 200, {"Location": f"/v1/voices/{quote(voice.name, safe='')}"}
    )


@blueprint.get("")
@describe(
    Operation(
        summary="List voices",
        tag="voices",
        description="The server's own first, then those that clients made, newest first.",
        parameters=(
            _MODEL,
            Parameter("after", "query", "`next_cursor` of the page before."),
            Parameter(
                "limit", "query", "Voices a page.", {"type": "integer", "minimum": 1, "maximum": 100}
            ),
        ),
        answers={200: Answer("One page.", VoiceList, headers=("Link",))},
        problems={422: "A parameter is wrong (`field` names it).", **_AWAY},
    )
)
def index() -> Response:
    having = services()
    deploy = _deploy(having, request.args.get("model"))
    after = request.args.get("after")
    if after is not None and not is_voice_id(after):
        raise bad_parameter("after", "this is no cursor that was given out here")
    made, cursor = having.backend.voices.page(deploy.model, after, whole("limit", 100, 1, 100))
    own = built_in_voices(having.backend, deploy) if after is None else []
    data = [_built_in(deploy, name) for name in own] + [voice.public() for voice in made]
    return json_response({"data": data, "next_cursor": cursor}, headers=link_to_next(cursor))


@blueprint.get("/<name>")
@describe(
    Operation(
        summary="Get a voice",
        tag="voices",
        parameters=(_NAME, _MODEL),
        answers={200: Answer("The voice.", VoiceRecord)},
        problems={422: "That model is not served here.", **_MISSING, **_AWAY},
    )
)
def show(name: str) -> Response:
    having = services()
    deploy = _deploy(having, request.args.get("model"))
    made = _made(having, deploy, name)
    if made is not None:
        return json_response(made.public())
    _check_built_in(having, deploy, name)
    return json_response(_built_in(deploy, name))


@blueprint.delete("/<name>")
@describe(
    Operation(
        summary="Delete a voice",
        tag="voices",
        description="Its name is free at once. Jobs that were made with it keep it to their end; then what "
        "was recorded and prepared is removed.",
        parameters=(_NAME, _MODEL),
        answers={204: Answer("It is gone.")},
        problems={
            409: "It is one of the server's own.",
            422: "That model is not served here.",
            **_MISSING,
            **_AWAY,
        },
    )
)
def delete(name: str) -> Response:
    having = services()
    deploy = _deploy(having, request.args.get("model"))
    clean = clean_name(name)
    gone = having.backend.voices.delete(deploy.model, clean) if clean is not None else None
    if gone is None:
        _check_built_in(having, deploy, name)
        raise StagewaveError(ErrorCode.VOICE_BUILT_IN, "the server's own voices cannot be deleted")
    voice_id, jobs = gone
    if not jobs:
        remove_voice(having.backend, voice_id)
    return Response(status=204)


@blueprint.get("/<name>/preview")
@describe(
    Operation(
        summary="Listen to a voice",
        tag="voices",
        description="The recording that it was made of, as it is kept: mono, 24 kHz.",
        parameters=(
            _NAME,
            _MODEL,
            Parameter(
                "format", "query", "Unset: by `Accept`.", {"type": "string", "enum": list(AUDIO_FORMATS)}
            ),
            Parameter("Accept", "header", "The audio types that can be played."),
        ),
        answers={200: Answer("The audio.", media_types=_MEDIA_TYPES)},
        problems={
            404: "There is no such voice, or it is one of the server's own, of which nothing is kept.",
            406: "`Accept` names no type that there is.",
            422: "`format` is none that there is, or that model is not served here.",
            **_AWAY,
        },
    )
)
def preview(name: str) -> Response:
    having = services()
    wanted = choice("format", AUDIO_FORMATS) or accepted_format(request.accept_mimetypes, WAV.name)
    if wanted is None:
        raise StagewaveError(ErrorCode.NOT_ACCEPTABLE, "no audio type is offered that the client accepts")
    deploy = _deploy(having, request.args.get("model"))
    made = _made(having, deploy, name)
    if made is None:
        _check_built_in(having, deploy, name)
        raise StagewaveError(ErrorCode.NOT_FOUND, "of the server's own voices there is no recording")
    with having.backend.objects.open(prompt_key(made.id)) as found:
        pcm = b"".join(found.iter_chunks())[WAV_HEADER_BYTES:]
    response = Response(_encoded(pcm, wanted))
    form = AUDIO_FORMATS[wanted]
    response.content_type = form.content_type
    if form is PCM:
        response.content_type += f";rate={PROMPT_RATE_HZ}"
    file_name = safe_name(made.name, made.id, form.extension)
    response.headers["Content-Disposition"] = content_disposition(file_name, download=False)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Vary"] = "Accept"
    return response


def _encoded(pcm: bytes, form: str) -> bytes:
    if form == WAV.name:
        return wav_header(PROMPT_RATE_HZ, len(pcm)) + pcm
    encoder = open_encoder(form, PROMPT_RATE_HZ)
    try:
        begun = encoder.write(pcm)
    finally:
        end = encoder.close()
    return begun + end


def _fields(form: MultiDict[str, str]) -> tuple[str, str | None]:
    for field, values in form.lists():
        if field not in VoiceForm.model_fields:
            raise StagewaveError(ErrorCode.INVALID_REQUEST, "there is no such field", field="(unknown)")
        if len(values) > 1:
            raise StagewaveError(
                ErrorCode.INVALID_MULTIPART, "a field stands in the form twice", field=field
            )
    name = clean_name(form.get("name", ""))
    if name is None:
        raise StagewaveError(
            ErrorCode.INVALID_REQUEST,
            f"1 to {NAME_CHARS} letters and digits, and between them spaces, dots, hyphens, underscores",
            field="name",
        )
    return name, form.get("model") or None


def _make(having: Services, deploy: DeployConfig, name: str, prompt: Prompt) -> tuple[Voice, bool]:
    """The prompt is in the object store before there is a voice that could be asked for."""
    voice_id = new_voice_id()
    content = hashlib.sha256(prompt.wav).hexdigest()
    new = NewVoice(name, deploy.model, content, prompt.duration_s, prompt.warnings)
    objects = having.backend.objects
    objects.put_bytes(prompt_key(voice_id), prompt.wav, WAV.content_type)
    try:
        voice, made = having.backend.voices.create(voice_id, new)
    except StagewaveError as error:
        if error.code is not ErrorCode.BROKER_UNAVAILABLE:  # which may have made it all the same
            objects.delete_prefix(voice_prefix(voice_id))
        error.field = error.field or "name"
        raise
    if not made:
        objects.delete_prefix(voice_prefix(voice_id))
    if voice.status == "preparing":
        having.backend.bell.ring(pool_of(Stage.TOKEN2WAV, deploy.model))
    return voice, made


def _deploy(having: Services, model: str | None) -> DeployConfig:
    return having.deploy_for(model, Task.TTS)


def _made(having: Services, deploy: DeployConfig, name: str) -> Voice | None:
    clean = clean_name(name)
    return having.backend.voices.find(deploy.model, clean) if clean is not None else None


def _check_built_in(having: Services, deploy: DeployConfig, name: str) -> None:
    """Raises ``not_found``, the same for a name that could be none and for one that is free."""
    if name not in built_in_voices(having.backend, deploy):
        raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such voice")


def _built_in(deploy: DeployConfig, name: str) -> JsonObject:
    return {
        "id": None,
        "name": name,
        "built_in": True,
        "model": deploy.model,
        "status": "ready",
        "error": None,
        "duration_s": None,
        "warnings": [],
        "created_at": None,
    }
