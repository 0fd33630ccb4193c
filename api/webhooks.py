"""``/v1/jobs/{id}/webhooks``: which webhooks a job owes, how each try went, and sending one again."""

from __future__ import annotations

from flask import Blueprint, Response

from api.jobs import JOB_ID, find_job
from api.json_response import json_response
from api.operation import Answer, Operation, Parameter, describe
from api.records import Delivery, DeliveryList
from api.services import services

blueprint = Blueprint("webhooks", __name__, url_prefix="/v1/jobs")

_PROBLEMS = {410: "The job was deleted.", 503: "The queue cannot be reached."}


@blueprint.get("/<job_id>/webhooks")
@describe(
    Operation(
        summary="List a job's webhooks and their tries",
        tag="webhooks",
        parameters=(JOB_ID,),
        answers={200: Answer("Oldest first.", DeliveryList)},
        problems={404: "There is no such job.", **_PROBLEMS},
    )
)
def index(job_id: str) -> Response:
    having = services()
    find_job(having, job_id)
    deliveries = having.backend.deliveries.of_job(job_id)
    return json_response({"data": [delivery.public() for delivery in deliveries]})


@blueprint.post("/<job_id>/webhooks/<delivery_id>/replay")
@describe(
    Operation(
        summary="Send a webhook again",
        tag="webhooks",
        description="Under the same `webhook-id` and with the same body, tried as if it were new.",
        parameters=(JOB_ID, Parameter("delivery_id", "path", "The delivery's id.")),
        answers={202: Answer("It is due now.", Delivery)},
        problems={404: "There is no such job, or no such delivery.", **_PROBLEMS},
    )
)
def replay(job_id: str, delivery_id: str) -> Response:
    having = services()
    find_job(having, job_id)
    return json_response(having.backend.deliveries.replay(job_id, delivery_id).public(), 202)
