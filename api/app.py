"""The Flask application."""

from __future__ import annotations

from flask import Flask
from prometheus_client import CollectorRegistry

from api import (
    audio,
    auth,
    batches,
    docs,
    events,
    files,
    health,
    jobs,
    openai_chat,
    openai_models,
    openai_speech,
    openai_transcriptions,
    problems,
    request_log,
    transcript,
    voices,
    webhooks,
)
from api.cached_check import CachedCheck
from api.http_metrics import HttpMetrics
from api.job_body import StrictRequest
from api.metrics import QueueCollector
from api.services import Services, install
from api.waiting_room import WaitingRoom
from stage_pipeline.deploy import load_deploys
from workers.backend import connect_backend
from workers.settings import Settings

_STORE_CHECK_S = 5.0
"""A probe comes every second or so, from several places; the object store need not see them all."""


class StagewaveApp(Flask):
    request_class = StrictRequest


def create_app(settings: Settings) -> Flask:
    """Connects to nothing yet: it can be made while broker and object store are still starting. Raises
    ``DeployError`` or ``SettingsError`` for a configuration that cannot be used."""
    deploys = load_deploys(settings.config, settings.model_dir)
    backend = connect_backend(settings)
    registry = CollectorRegistry()
    room = WaitingRoom(settings.waiters_limit)
    registry.register(QueueCollector(backend, deploys, room))
    store_check = CachedCheck(backend.objects.ping, _STORE_CHECK_S)

    app = StagewaveApp("api", static_folder=None)
    # No redirects: their bodies are HTML, and a client that POSTs would not follow them.
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.config["MAX_CONTENT_LENGTH"] = settings.max_json_bytes
    install(app, Services(settings, deploys, backend, room, store_check, registry))
    problems.register(app)
    request_log.register(app, HttpMetrics(registry))
    auth.register(app, settings.api_keys)
    resources = (jobs, batches, files, events, audio, transcript, voices, webhooks, health, docs)
    openai = (openai_speech, openai_transcriptions, openai_chat, openai_models)
    for module in (*resources, *openai):
        app.register_blueprint(module.blueprint)
    return app
