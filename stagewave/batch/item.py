"""What there is to do, and what cannot be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stagewave.errors import LocalError
from stagewave.record import JsonObject


@dataclass(frozen=True, slots=True)
class Item:
    """One job to make. ``audio`` is a file or an ``s3://`` URL, ``tag`` tells versions of the latter apart,
    ``fields`` are the job's own besides the options of the whole run."""

    source: str
    output: Path
    audio: Path | str | None = None
    tag: str = ""
    fields: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """What was not done, and why. ``item`` is None where there is nothing that could be tried again as it
    is: an unreadable folder, a line that is none."""

    source: str
    code: str
    message: str
    item: Item | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Something in a folder that is no recording by its name."""

    source: str


Found = Item | Failure | PassedOver


class ItemFailed(LocalError):
    """An item came to nothing; the others may go on."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


def shown(source: str) -> str:
    """A path for people: without what would break a line or move a terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in source)
