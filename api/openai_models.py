"""``/v1/models``: the models that are served, and which of them can work now."""

from __future__ import annotations

import time

from flask import Blueprint, Response

from api.json_response import json_response
from api.openai_records import OpenAiError, OpenAiModel, OpenAiModelList
from api.operation import Answer, Operation, Parameter, describe
from api.services import Services, services
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import StagewaveError
from stage_pipeline.stages import Task
from workers.models import deploy_for
from workers.openai_body import model_of
from workers.states import IO_POOL, pools_of

blueprint = Blueprint("openai_models", __name__, url_prefix="/v1/models")

_STARTED = int(time.time())


@blueprint.get("")
@describe(
    Operation(
        summary="List models (OpenAI)",
        tag="openai",
        description="All that are served here, the default one first. A job names one as its `model`.",
        answers={200: Answer("Those that are served.", OpenAiModelList)},
        error_model=OpenAiError,
    )
)
def index() -> Response:
    having = services()
    ready = _ready_pools(having)
    return json_response({"object": "list", "data": [_record(deploy, ready) for deploy in having.deploys]})


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
    having = services()
    deploy = deploy_for(having.deploys, model_of(model_id, having.deploys), Task.TTS)
    return json_response(_record(deploy, _ready_pools(having)))


def _ready_pools(having: Services) -> set[str]:
    try:
        return {worker.pool for worker in having.backend.pools.workers() if worker.state == "ready"}
    except StagewaveError:
        return set()  # the broker is away: then none can work


def _record(deploy: DeployConfig, ready: set[str]) -> dict[str, object]:
    pools = {pool for pool in pools_of([deploy]) if pool != IO_POOL}
    return {
        "id": deploy.model,
        "object": "model",
        "created": _STARTED,
        "owned_by": "stagewave",
        "tasks": [task.value for task in Task if task is Task.ASR or deploy.speaks],
        "ready": pools <= ready,
    }
