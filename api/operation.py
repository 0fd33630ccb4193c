"""What a view promises, written beside it: the OpenAPI document is made of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

View = TypeVar("View", bound=Callable[..., object])

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query, header or path parameter; ``schema`` is JSON Schema."""

    name: str
    place: str
    description: str
    schema: dict[str, object] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True)
class Answer:
    """One status. ``body`` is a model (JSON) or None; ``media_types`` are for what is not JSON."""

    description: str
    body: type[BaseModel] | None = None
    media_types: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``problems`` are statuses answered as problem details, or with
    ``error_model`` as that."""

    summary: str
    tag: str
    answers: dict[int, Answer]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    problems: dict[int, str] = field(default_factory=dict)
    request_model: type[BaseModel] | None = None
    form_model: type[BaseModel] | None = None
    error_model: type[BaseModel] | None = None


def describe(operation: Operation) -> Callable[[View], View]:
    """Hang ``operation`` on a view; the view itself is not changed."""

    def attach(view: View) -> View:
        view.operation = operation  # type: ignore[attr-defined]  # an attribute only, read by openapi.py
        return view

    return attach


def operation_of(view: Callable[..., Any]) -> Operation | None:
    operation = getattr(view, "operation", None)
    return operation if isinstance(operation, Operation) else None
