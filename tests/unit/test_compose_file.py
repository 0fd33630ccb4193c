"""``docker-compose.yml`` is what the Compose specification knows, and hangs together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from compose_spec import PyCompose

from stage_pipeline.deploy import load_deploy
from tests.compose import in_profile, read_compose
from workers.settings import load_settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "infra" / "docker"


def test_the_specification_knows_every_key_and_value() -> None:
    compose = PyCompose.from_json(json.dumps(read_compose()))

    compose.validate()
    assert {
        "redis",
        "minio",
        "api",
        "scheduler",
        "io",
        "thinker",
        "token2wav",
        "embedded",
    } == set(compose.service_names())


def test_an_unknown_key_would_be_found() -> None:
    document = read_compose()
    document["services"]["api"]["health_check"] = {}

    with pytest.raises(ValueError, match="health_check"):
        PyCompose.from_json(json.dumps(document))


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_whatever_a_service_waits_for_starts_with_it(profile: str) -> None:
    services = in_profile(read_compose(), profile)

    assert set(services) == {"redis", "minio"} | (
        {"embedded"} if profile == "cpu" else {"api", "scheduler", "io", "thinker", "token2wav"}
    )
    for service in services.values():
        for name, wanted in service.get("depends_on", {}).items():
            has_check = "healthcheck" in services[name]
            assert has_check is (wanted["condition"] == "service_healthy")


def test_every_part_of_ours_is_checked_and_bound_to_loopback() -> None:
    document = read_compose()

    for name, service in document["services"].items():
        assert "healthcheck" in service, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert service.get("privileged") is None


def test_volumes_are_declared_and_paths_are_there() -> None:
    document = read_compose()
    used = {volume for service in document["services"].values() for volume in service.get("volumes", ())}
    sources = {volume.split(":")[0] for volume in used} - {"./model"}

    assert {source for source in sources if not source.startswith(".")} == set(document["volumes"])
    assert all((ROOT / source).exists() for source in sources if source.startswith("."))


def test_the_pools_reserve_gpus_and_nobody_else_does() -> None:
    services = read_compose()["services"]
    reserving = {name for name, service in services.items() if "deploy" in service}

    assert reserving == {"thinker", "token2wav"}
    for name in reserving:
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_every_environment_loads_and_names_a_shipped_deploy() -> None:
    for name, service in read_compose()["services"].items():
        if name in ("redis", "minio"):
            continue
        settings = load_settings({key: str(value) for key, value in service["environment"].items()})
        (config,) = settings.config
        assert load_deploy(ROOT / config.relative_to("/app")).stage(0) is not None


def test_the_images_are_built_from_what_is_there_and_do_not_run_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    stages = dict(zip(re.findall(r"^FROM \S+ AS (\w+)$", text, re.M), text.split("FROM ")[1:], strict=True))

    targets = {
        service["build"]["target"] for service in read_compose()["services"].values() if "build" in service
    }
    assert targets == set(stages) == {"cpu", "gpu"}
    for stage in stages.values():
        assert stage.index("USER stagewave") < stage.index("ENTRYPOINT")
        sources = [word for line in re.findall(r"^COPY (.*)$", stage, re.M) for word in line.split()[:-1]]
        ignored = (DOCKER / "Dockerfile.dockerignore").read_text().split()
        assert all((ROOT / source).exists() and f"!{source}" in ignored for source in sources)
