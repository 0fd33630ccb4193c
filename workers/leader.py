"""Which of several schedulers or feeders acts: a lock with a short life, renewed by its holder."""

from __future__ import annotations

from typing import cast

import redis
from ulid import ULID

from workers.broker import broker_errors

TERM_S = 5.0
"""How long after a leader's death another one takes over."""

_RENEW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
"""
_RESIGN = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Leadership:
    """Two leaders for a moment (a long pause of the first) do no harm: all they do is one script a step,
    and each step looks at the state it finds."""

    def __init__(self, client: redis.Redis, key: str) -> None:
        self._client = client
        self._key = key
        self._name = str(ULID())
        self._renew = client.register_script(_RENEW)
        self._resign = client.register_script(_RESIGN)

    def hold(self) -> bool:
        """Take or renew; whether this process leads now."""
        term_ms = int(TERM_S * 1000)
        with broker_errors():
            if self._client.set(self._key, self._name, nx=True, px=term_ms):
                return True
            return cast(int, self._renew(keys=[self._key], args=[self._name, term_ms])) == 1

    def resign(self) -> None:
        with broker_errors():
            self._resign(keys=[self._key], args=[self._name])
