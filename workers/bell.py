"""The bell of a pool: a Celery message that says "there is work", and no more.

Which job is worked on is decided when a worker answers: it claims the best ready job in one step, with
lease and attempt number, and goes on until none is ready. So a bell that is lost, late or doubled harms
nothing: the scheduler rings again where jobs are ready and no bell waits, and a worker that finds nothing
goes back to waiting.
"""

from __future__ import annotations

import logging
import threading

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from workers import keys
from workers.celery_app import WORK

_log = logging.getLogger(__name__)

ENOUGH = 64
"""So many bells waiting mean that no thread is free to take one."""


class Bell:
    """Rings from many threads at once; each has its own producer, for a lock costs more than a socket."""

    def __init__(self, app: Celery, client: redis.Redis) -> None:
        self._app = app
        self._client = client
        self._local = threading.local()

    def ring(self, pool: str, enough: int = ENOUGH) -> None:
        """Never raises: the job is already in the queue, and the scheduler rings for it in a second.
        Nothing is done when ``enough`` bells wait."""
        if self._rings_enough(pool, enough):
            return
        # Twice: a connection that idled through a restart of the broker shows it only when used.
        for _ in range(2):
            try:
                if not hasattr(self._local, "producer"):
                    self._local.producer = self._app.amqp.Producer(self._app.connection_for_write())
                self._app.send_task(WORK, queue=pool, producer=self._local.producer, retry=False)
                return
            except (redis.RedisError, OperationalError, OSError) as error:
                self._local.__dict__.pop("producer", None)
                cause = type(error).__name__
        _log.warning("bell not rung", extra={"pool": pool, "error": cause})

    def _rings_enough(self, pool: str, enough: int) -> bool:
        """Whether every thread is busy and will look for more by itself: a bell costs more than a look."""
        try:
            return waiting_bells(self._client, pool) >= enough
        except redis.RedisError:
            return False


def waiting_bells(client: redis.Redis, pool: str) -> int:
    """Bells of a pool that no worker has taken yet."""
    return int(client.llen(keys.bells(pool)))
