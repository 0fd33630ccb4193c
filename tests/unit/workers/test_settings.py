"""Settings come from the environment, and only what is known and well-formed does."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.settings import Settings, SettingsError, load_settings, to_environ


def test_defaults_bind_to_loopback() -> None:
    assert load_settings({}) == Settings()
    assert Settings().host == "127.0.0.1"


def test_values_are_parsed_by_their_fields_types() -> None:
    environ = {
        "STAGEWAVE_PORT": "9000",
        "STAGEWAVE_LEASE_S": "2.5",
        "STAGEWAVE_HOME": "/tmp/x",
        "STAGEWAVE_API_KEYS": "one, two",
        "STAGEWAVE_WEBHOOK_RETRY_S": "1,2",
        "STAGEWAVE_CONFIG": "a.yaml, b.yaml:c.yaml",
        "PATH": "/bin",
    }
    settings = load_settings(environ)
    assert (settings.port, settings.lease_s, settings.home) == (9000, 2.5, Path("/tmp/x"))
    assert (settings.api_keys, settings.webhook_retry_s) == (("one", "two"), (1.0, 2.0))
    assert settings.config == (Path("a.yaml"), Path("b.yaml"), Path("c.yaml"))


def test_a_child_process_loads_the_same_settings() -> None:
    settings = Settings(redis_url="redis://x", api_keys=("a", "b"), private_hosts=("127.0.0.1:80",))
    assert load_settings(to_environ(settings)) == settings


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="STAGEWAVE_PROT"):
        load_settings({"STAGEWAVE_PROT": "1"})


def test_a_value_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(SettingsError, match="STAGEWAVE_PORT"):
        load_settings({"STAGEWAVE_PORT": "eight"})


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="STAGEWAVE_REDIS_URL"):
        Settings().require("redis_url")


def test_a_setting_that_is_set_to_nothing_is_not_set() -> None:
    """An unset variable in a compose file once made the server listen on every address."""
    assert (
        load_settings({"STAGEWAVE_HOST": "", "STAGEWAVE_HOME": "", "STAGEWAVE_REDIS_URL": ""}) == Settings()
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_S", "nan"),
        ("LEASE_S", "-5"),
        ("JOB_RETENTION_S", "inf"),
        ("PORT", "99999"),
        ("PORT", "0"),
        ("MAX_ATTEMPTS", "0"),
        ("IO_CONCURRENCY", "0"),
        ("HEARTBEAT_S", "60"),
        ("WEBHOOK_RETRY_S", "5,-1"),
        ("LOG_LEVEL", "loud"),
        ("REDIS_URL", "foo"),
        ("S3_ENDPOINT", "foo"),
        ("API_THREADS", "10"),
    ],
)
def test_a_value_that_cannot_work_is_named_before_anything_starts(name: str, value: str) -> None:
    expected = "WAITERS_LIMIT" if name == "API_THREADS" else name
    with pytest.raises(SettingsError, match=f"STAGEWAVE_{expected}"):
        load_settings({f"STAGEWAVE_{name}": value})
