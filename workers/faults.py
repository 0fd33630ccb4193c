"""What is wrong with a request, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stage_pipeline.errors import ErrorCode, StagewaveError


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: where, and what."""

    field: str
    message: str


class InvalidRequest(StagewaveError):
    """A request with one or more faults; the first is the one that ``field`` names."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        first = faults[0]
        super().__init__(ErrorCode.INVALID_REQUEST, first.message, field=first.field)
        self.faults = tuple(faults)
