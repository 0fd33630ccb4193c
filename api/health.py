"""``/healthz``, ``/readyz`` and ``/metrics``: for machines that watch."""

from __future__ import annotations

from flask import Blueprint, Response

from api.cached_check import CheckResult, run_check
from api.json_response import json_response
from api.metrics import CONTENT_TYPE, exposition
from api.operation import Answer, Operation, describe
from api.records import Health, Readiness
from api.services import Services, services
from stage_pipeline.errors import StagewaveError
from workers.job import iso8601
from workers.states import pools_of

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
@describe(
    Operation(
        summary="Whether this process answers",
        tag="health",
        answers={200: Answer("It does.", Health)},
    )
)
def healthz() -> Response:
    return json_response({"status": "ok"})


@blueprint.get("/readyz")
@describe(
    Operation(
        summary="Whether jobs can be taken and worked on",
        tag="health",
        answers={
            200: Answer("Queue, object store and every pool are there.", Readiness),
            503: Answer("Something is missing; `checks` says what, and of a pool since when.", Readiness),
        },
    )
)
def readyz() -> Response:
    having = services()
    checks = {
        "redis": run_check(having.backend.counts.by_status),
        "object_store": having.store_check.result(),
    }
    checks |= _pools(having)
    ready = all(check["ok"] for check in checks.values())
    body = {"status": "ready" if ready else "not_ready", "checks": checks}
    return json_response(body, 200 if ready else 503)


@blueprint.get("/metrics")
@describe(
    Operation(
        summary="Metrics for Prometheus",
        tag="health",
        answers={200: Answer("In the text format.", media_types=("text/plain",))},
    )
)
def metrics() -> Response:
    return Response(exposition(services().registry), content_type=CONTENT_TYPE)


def _pools(having: Services) -> dict[str, CheckResult]:
    pools = pools_of(having.deploys)
    try:
        workers = having.backend.pools.workers()
        last_ready = {pool: having.backend.pools.last_ready(pool) for pool in pools}
    except StagewaveError:
        workers, last_ready = [], dict.fromkeys(pools)
    ready = {worker.pool for worker in workers if worker.state == "ready"}
    starting = {worker.pool for worker in workers if worker.state == "starting"}
    found: dict[str, CheckResult] = {}
    for pool in pools:
        if pool in ready:
            found[f"pool:{pool}"] = {"ok": True}
            continue
        # Of a pool that was never seen, this process can only say that it has been looking for so long.
        since = iso8601(last_ready[pool] or having.started_at) or ""
        detail = "starting" if pool in starting else "no worker"
        found[f"pool:{pool}"] = {"ok": False, "detail": detail, "since": since}
    return found
