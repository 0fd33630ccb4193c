"""The one frozen configuration of a process, from ``STAGEWAVE_*``; nothing else reads the environment."""

from __future__ import annotations

import math
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints

PREFIX = "STAGEWAVE_"


class SettingsError(ValueError):
    """A setting that is unknown, missing or unusable; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Field ``lease_s`` is set by ``STAGEWAVE_LEASE_S``, and so on. Lists are separated by commas, and
    lists of files also as in ``PATH``."""

    home: Path = Path(".stagewave")
    host: str = "127.0.0.1"
    port: int = 8000
    config: tuple[Path, ...] = (Path(__file__).parent.parent / "configs" / "embedded.yaml",)
    """Deploy configs, one for each model that is served; the first one's is the default model."""
    model_dir: Path | None = None
    """The folder of the model, for deploy configs that name none (those of vLLM-Omni do not)."""
    log_level: str = "INFO"

    redis_url: str | None = None
    s3_endpoint: str | None = None
    s3_bucket: str = "stagewave"
    s3_region: str = "us-east-1"
    s3_access_key: str | None = None
    s3_secret_key: str | None = None
    s3_input_prefixes: tuple[str, ...] = ("uploads/",)
    """Keys of our bucket that a job may name as ``s3://`` input."""

    api_keys: tuple[str, ...] = ()
    """When set, every call under /v1 needs one of them as a bearer token."""
    api_threads: int = 512
    waiters_limit: int = 400
    """Requests that may wait or listen at once; the other threads stay free for quick answers."""
    max_upload_bytes: int = 512 * 1024 * 1024
    max_json_bytes: int = 64 * 1024 * 1024
    """A JSON body may carry a ``data:`` URL, so this is larger than any text."""
    queue_limit: int = 100_000

    private_hosts: tuple[str, ...] = ()
    """``host`` or ``host:port`` that audio may be fetched from, and webhooks sent to, though private."""
    fetch_timeout_s: float = 120.0
    webhook_secret: str | None = None
    """``whsec_…``; ``stagewave up`` makes one in its home folder when unset."""
    webhook_timeout_s: float = 15.0
    webhook_retry_s: tuple[float, ...] = (5, 30, 120, 600, 1800, 3600, 7200, 14400, 21600, 36000)
    """Waits between tries of one delivery: a day in all."""

    lease_s: float = 8.0
    heartbeat_s: float = 0.5
    """How often a worker renews its leases, and so how soon it sees a cancel."""
    max_attempts: int = 3
    """Attempts of one stage of one job before it fails with ``worker_lost``."""
    engine_silent_s: float = 120.0
    """An engine that has work and gives nothing for so long hangs: its process is started again."""
    job_deadline_s: float = 24 * 3600
    drain_s: float = 5.0
    """How long a stopping worker lets its jobs go on before it hands them back to the queue."""
    io_concurrency: int = 16

    disk_floor_bytes: int = 256 * 1024 * 1024
    """With less than this left on the disk of ``home`` a worker takes no more jobs."""

    job_retention_s: float = 7 * 24 * 3600
    """How long a finished job's record and objects are kept."""
    idempotency_ttl_s: float = 24 * 3600
    audio_stream_bytes: int = 32 * 1024 * 1024
    """Live audio kept for late listeners of one running job; older audio comes from the object store."""

    @property
    def webhook_hold_s(self) -> float:
        """A webhook that is being sent is held for so long: should its sender die, it is due again."""
        return 2 * self.webhook_timeout_s

    @property
    def webhook_longest_wait_s(self) -> float:
        """No webhook waits longer than this for its next try, whatever its receiver asks for."""
        return max(self.webhook_hold_s, 1.5 * max(self.webhook_retry_s))

    def require(self, *names: str) -> None:
        """Raises ``SettingsError`` naming the first of ``names`` that has no value."""
        for name in names:
            if getattr(self, name) is None:
                raise SettingsError(f"{PREFIX}{name.upper()} is not set")


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Raises ``SettingsError`` for an unknown ``STAGEWAVE_*`` name or a value of the wrong form."""
    hints = get_type_hints(Settings)
    known = {f"{PREFIX}{field.name.upper()}": field.name for field in fields(Settings)}
    values: dict[str, object] = {}
    for name, raw in environ.items():
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            raise SettingsError(f"{name} is not a setting")
        if raw == "":
            continue  # what is set to nothing is not set: an unset variable in a compose file, say
        values[known[name]] = _parse(name, raw, hints[known[name]])
    settings = Settings(**values)  # type: ignore[arg-type]  # parsed by each field's own type
    _check(settings)
    return settings


_MAY_BE_ZERO = frozenset({"drain_s", "disk_floor_bytes", "audio_stream_bytes"})
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_URL_SCHEMES = {
    "redis_url": ("redis://", "rediss://", "unix://"),
    "s3_endpoint": ("http://", "https://"),
}


def _check(settings: Settings) -> None:
    """What each value may be; the setting at fault is named."""
    for field in fields(Settings):
        value = getattr(settings, field.name)
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int | float):
                continue
            least = 0 if field.name in _MAY_BE_ZERO else sys.float_info.min
            if not (math.isfinite(number) and number >= least):
                raise SettingsError(f"{_name(field.name)} has to be more than 0, and finite")
    for name, schemes in _URL_SCHEMES.items():
        url = getattr(settings, name)
        if url is not None and not url.startswith(schemes):
            raise SettingsError(f"{_name(name)} has to begin with {' or '.join(schemes)}")
    if not settings.config:
        raise SettingsError(f"{_name('config')} names no file")
    if settings.port > 65_535:
        raise SettingsError(f"{_name('port')} has to be 65535 at most")
    if settings.log_level.upper() not in _LOG_LEVELS:
        raise SettingsError(f"{_name('log_level')} has to be one of {', '.join(_LOG_LEVELS)}")
    if settings.heartbeat_s > settings.lease_s / 2:
        raise SettingsError(f"{_name('heartbeat_s')} has to be half of {_name('lease_s')} at most")
    if settings.waiters_limit >= settings.api_threads:
        raise SettingsError(f"{_name('waiters_limit')} has to be less than {_name('api_threads')}")


def _name(field: str) -> str:
    return f"{PREFIX}{field.upper()}"


def to_environ(settings: Settings) -> dict[str, str]:
    """The environment that makes a child process load the same settings."""
    environ = {}
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            environ[f"{PREFIX}{field.name.upper()}"] = text
    return environ


def _parse(name: str, raw: str, hint: object) -> object:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    try:
        if get_origin(hint) is tuple:
            item = get_args(hint)[0]
            parts = raw.replace(os.pathsep, ",") if item is Path else raw
            return tuple(item(part.strip()) for part in parts.split(",") if part.strip())
        if hint in (int, float, str, Path):
            return hint(raw)
    except ValueError:
        raise SettingsError(f"{name} has a value that is no {getattr(hint, '__name__', hint)}") from None
    raise AssertionError(f"no parser for {name}")
