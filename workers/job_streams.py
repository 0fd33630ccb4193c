"""What flows between the stages of a job and to its listeners, once it is no longer wanted."""

from __future__ import annotations

import redis

from workers import keys
from workers.broker import broker_errors

_LISTENERS_GRACE_S = 300
"""How long live audio outlives its job: whoever listens reads on to the end."""


class JobStreams:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def drop_tokens(self, job_id: str) -> None:
        """The tokens of a job that has succeeded; its live audio stays a while for slow listeners."""
        self._unlink(keys.tokens(job_id), keys.tokens_head(job_id))
        self._expire(keys.audio(job_id), keys.audio_head(job_id))

    def drop(self, job_id: str) -> None:
        """Tokens and audio of a job that nobody can listen to any more."""
        self._unlink(keys.tokens(job_id), keys.tokens_head(job_id))
        self._unlink(keys.audio(job_id), keys.audio_head(job_id))

    def _unlink(self, *names: str) -> None:
        # The names share a hash tag, so they are on one node of a cluster.
        with broker_errors():
            self._client.unlink(*names)

    def _expire(self, *names: str) -> None:
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.expire(name, _LISTENERS_GRACE_S)
            pipe.execute()
