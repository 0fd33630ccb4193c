"""``/v1/models``: the one model that is served, and the names it answers to."""

from __future__ import annotations

import time

from flask import Blueprint, Response

from api.json_response import json_response
from api.openai_records import OpenAiError, OpenAiModel, OpenAiModelList
from api.operation import Answer, Operation, Parameter, describe
from api.services import services
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError

blueprint = Blueprint("openai_models", __name__, url_prefix="/v1/models")

_STARTED = int(time.time())
_ALIASES = frozenset(
    {
        "gpt-4o-audio-preview",
        "gpt-4o-mini-audio-preview",
        "gpt-4o-mini-transcribe",
        "gpt-4o-mini-tts",
        "gpt-4o-transcribe",
        "gpt-audio",
        "gpt-audio-mini",
        "step-audio-2",
        "step-audio-2-mini",
        "step-audio2-mini",
        "tts-1",
        "tts-1-hd",
        "whisper-1",
    }
)
"""Names that clients have built in, where their users can often not change them. They mean the model that
is served, whichever that is, and its true name is in the list, the job and the answer."""


@blueprint.get("")
@describe(
    Operation(
        summary="List models (OpenAI)",
        tag="openai",
        answers={200: Answer("The one that is served.", OpenAiModelList)},
        error_model=OpenAiError,
    )
)
def index() -> Response:
    return json_response({"object": "list", "data": [_record(services().deploy)]})


@blueprint.get("/<path:model_id>")
@describe(
    Operation(
        summary="Get a model (OpenAI)",
        tag="openai",
        parameters=(Parameter("model_id", "path", "Its name."),),
        answers={200: Answer("The model.", OpenAiModel)},
        problems={404: "That model is not served here."},
        error_model=OpenAiError,
    )
)
def show(model_id: str) -> Response:
    deploy = services().deploy
    check_model(model_id, deploy)
    return json_response(_record(deploy))


def check_model(name: str | None, deploy: DeployConfig) -> None:
    """Raises ``model_unknown``. Unset is the model that is served."""
    if not name or name == deploy.model or name.rpartition("/")[2].lower() in _ALIASES:
        return
    raise StagewaveError(ErrorCode.MODEL_UNKNOWN, "this server does not serve that model", field="model")


def _record(deploy: DeployConfig) -> dict[str, object]:
    return {"id": deploy.model, "object": "model", "created": _STARTED, "owned_by": "stagewave"}
