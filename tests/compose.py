"""``docker-compose.yml`` as Compose reads it, for a machine without Docker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[1] / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def read_compose() -> dict[str, Any]:
    """With what is merged into each part, and then the default of each variable in its place: one that is
    empty stays a text."""
    document = _with_defaults(yaml.safe_load(FILE.read_text()))
    assert isinstance(document, dict)
    return document


def _with_defaults(part: object) -> object:
    if isinstance(part, dict):
        return {name: _with_defaults(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_with_defaults(value) for value in part]
    return _VARIABLE.sub(r"\2", part) if isinstance(part, str) else part


def in_profile(document: dict[str, Any], profile: str) -> dict[str, dict[str, Any]]:
    """The services that start with it."""
    return {
        name: service
        for name, service in document["services"].items()
        if profile in service.get("profiles", [profile])
    }
