"""What the views of one application work with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from flask import Flask, current_app
from prometheus_client import CollectorRegistry

from api.cached_check import CachedCheck
from api.waiting_room import WaitingRoom
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.stages import Task
from workers.backend import Backend
from workers.models import deploy_for
from workers.settings import Settings

_NAME = "stagewave"


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    deploys: tuple[DeployConfig, ...]
    backend: Backend
    room: WaitingRoom
    store_check: CachedCheck
    registry: CollectorRegistry
    started_at: float = field(default_factory=time.time)
    """When this process began to serve, in Unix seconds."""

    def deploy_for(self, model: str | None, task: Task) -> DeployConfig:
        """See ``workers.models``."""
        return deploy_for(self.deploys, model, task)


def install(app: Flask, services: Services) -> None:
    app.extensions[_NAME] = services


def services() -> Services:
    """Those of the application that serves the current request."""
    return services_of(current_app)


def services_of(app: Flask) -> Services:
    found = app.extensions[_NAME]
    if not isinstance(found, Services):
        raise TypeError("this application was not made by create_app")
    return found
