"""Serving the application with gunicorn: one process, many threads, and an end within seconds."""

from __future__ import annotations

import os
import resource

from flask import Flask
from gunicorn.app.base import BaseApplication

from api.app import create_app
from stage_pipeline.deploy import DeployError, load_deploys
from workers.cannot_start import cannot_start
from workers.log import start_logging
from workers.settings import Settings, SettingsError, load_settings

_STOP_S = 4
"""Waiters end within two seconds (``waiting_room.TICK_S``); what is left after this is cut."""
_KEEPALIVE_S = 30
_FILES = 8192
_SPARE_CONNECTIONS = 1000
"""Kept-alive connections between two requests; they cost no thread."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``DeployError`` or ``SettingsError`` before anything starts."""
    start_logging(settings.log_level)
    load_deploys(settings.config, settings.model_dir)
    settings.require("redis_url")
    _raise_file_limit()
    Server(settings).run()


def main() -> None:
    try:
        serve(load_settings(os.environ))
    except (DeployError, SettingsError) as error:
        cannot_start(error)


def _raise_file_limit() -> None:
    """A waiter takes two files, its own connection and one to the broker: the usual soft limit of 1024 is
    soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's master, configured from our settings alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        chosen = {
            "bind": f"{host}:{self._settings.port}",
            "workers": 1,
            "worker_class": "api.thread_worker.Worker",
            "threads": self._settings.api_threads,
            "worker_connections": self._settings.api_threads + _SPARE_CONNECTIONS,
            "backlog": 1024,
            "keepalive": _KEEPALIVE_S,
            "graceful_timeout": _STOP_S,
            "logger_class": "api.thread_worker.ServerLog",
            "proc_name": "stagewave-api",
            "control_socket_disable": True,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        # In the worker process, after the fork: no connection is shared with the master.
        return create_app(self._settings)


if __name__ == "__main__":
    main()
