"""Connections to the Redis-compatible broker, its scripts, and the mapping of its errors to ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import TypeVar, cast

import redis
from redis.backoff import ConstantBackoff, ExponentialBackoff
from redis.commands.core import Script
from redis.retry import Retry

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys

_PASSING = ("NOREPLICAS", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "READONLY", "OOM")
"""Refusals that say something of the broker's state, and nothing of the command."""

_Answer = TypeVar("_Answer")
ScriptAnswer = list[object] | int | bytes

CONNECT_TIMEOUT_S = 1.0
REPLY_TIMEOUT_S = 1.2
"""With one more try, a web request knows within three seconds that the broker hangs."""
MAX_BLOCK_S = 15.0
"""Longest blocking read; the reply timeout of blocking connections is a little more."""


def connect(url: str, *, patient_s: float = 0.0) -> redis.Redis:
    """A client for short commands. ``patient_s``: how long a command is tried again while the broker
    is away (0 for a web request, which must answer soon; a worker would rather wait than lose work).
    Every script can be run twice without harm, so trying again is safe."""
    return redis.Redis.from_url(
        url,
        decode_responses=False,
        protocol=2,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=REPLY_TIMEOUT_S,
        socket_keepalive=True,
        retry=_retry(patient_s),
        max_connections=10_000,
    )


def connect_blocking(url: str, *, patient_s: float = 0.0) -> redis.Redis:
    """A client for blocking reads (up to ``MAX_BLOCK_S``); ``patient_s`` as for ``connect``."""
    return redis.Redis.from_url(
        url,
        decode_responses=False,
        protocol=2,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=MAX_BLOCK_S + REPLY_TIMEOUT_S,
        socket_keepalive=True,
        retry=_retry(patient_s),
        max_connections=10_000,
    )


def _retry(patient_s: float) -> Retry:
    if patient_s:
        return _PatientRetry(
            ExponentialBackoff(cap=0.5, base=0.02),
            retries=max(1, int(patient_s / 0.5)),
            supported_errors=(redis.ConnectionError, redis.TimeoutError, _Passing),
        )
    return Retry(ConstantBackoff(0.05), retries=1)


class _Passing(redis.ResponseError):
    """A refusal that says something of the broker's state, and nothing of the command."""


class _PatientRetry(Retry):
    """Tries such a command again too; the client library knows most of these refusals by text only."""

    def call_with_retry(self, do: Callable[..., _Answer], *arguments: object, **options: object) -> _Answer:
        def told_apart(*given: object) -> _Answer:
            try:
                return do(*given)
            except redis.ResponseError as error:
                if _is_passing(error):
                    raise _Passing(*error.args) from error
                raise

        return super().call_with_retry(told_apart, *arguments, **options)  # type: ignore[arg-type]  # the library's own, passed on


@contextmanager
def broker_errors() -> Iterator[None]:
    """Map what the client library raises to ``broker_unavailable``: away, restarting or out of memory."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ReadOnlyError) as error:
        raise StagewaveError(
            ErrorCode.BROKER_UNAVAILABLE, "the job queue cannot be reached", retry_after_s=2
        ) from error
    except redis.exceptions.OutOfMemoryError as error:
        raise StagewaveError(
            ErrorCode.BROKER_UNAVAILABLE, "the job queue is out of memory", retry_after_s=10
        ) from error
    except redis.ResponseError as error:
        if _is_passing(error):
            raise StagewaveError(
                ErrorCode.BROKER_UNAVAILABLE, "the job queue takes no changes now", retry_after_s=5
            ) from error
        raise


def _is_passing(error: redis.ResponseError) -> bool:
    kinds = (_Passing, redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)
    return isinstance(error, kinds) or str(error).startswith(_PASSING)


def broker_time(client: redis.Redis) -> float:
    """Unix seconds by the broker's clock: the one that all leases and due times are kept in, so that a
    machine whose own clock jumps harms nobody."""
    with broker_errors():
        seconds, microseconds = client.time()
    return seconds + microseconds / 1_000_000


class Scripts:
    """The Lua scripts of ``workers/lua``, each with the key names and the prelude in front."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._scripts: dict[str, Script] = {}

    def run(self, name: str, *, keys: tuple[str, ...] = (), args: tuple[object, ...] = ()) -> ScriptAnswer:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._client.register_script(_source(name))
        with broker_errors():
            return cast(ScriptAnswer, script(keys=list(keys), args=list(args)))  # type: ignore[arg-type]  # redis-py types args too narrowly


def text(value: object) -> str:
    """A bulk reply as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def hash_fields(record: Mapping[bytes, bytes]) -> dict[str, str]:
    """A hash as text."""
    return {name.decode(): value.decode() for name, value in record.items()}


def dumped(body: object) -> str:
    """JSON as scripts and records have it."""
    return json.dumps(body, ensure_ascii=False)


def pairs(flat: object) -> dict[str, str]:
    """A flat field-value reply as a dict."""
    items = [text(item) for item in cast(list[object], flat)]
    return dict(zip(items[::2], items[1::2], strict=True))


def _source(name: str) -> str:
    folder = resources.files("workers") / "lua"
    table = ", ".join(f"{short} = '{prefix}'" for short, prefix in keys.CONTROL_PREFIXES.items())
    prelude = (folder / "prelude.lua").read_text()
    return f"local K = {{{table}}}\n{prelude}\n{(folder / f'{name}.lua').read_text()}"
