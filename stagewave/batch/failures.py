"""``failures.jsonl``: what failed in a run, in a form that the same command takes again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from stagewave.batch.item import Failure
from stagewave.batch.outputs import output
from stagewave.record import JsonObject

NAME = "failures.jsonl"

Form = Callable[[Failure], JsonObject]
"""What the command reads again, apart from the error."""


class Failures:
    """Collected in a temporary file, since there may be many; ``keep`` puts them where the next run of the
    command finds them."""

    def __init__(self, form: Form) -> None:
        self._file = tempfile.TemporaryFile()
        self._form = form
        self.count = 0

    def add(self, failure: Failure) -> None:
        error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
        self._file.write(json.dumps(self._form(failure) | {"error": error}).encode() + b"\n")
        self.count += 1

    def keep(self, path: Path) -> None:
        """Write them to ``path``; without any, what an earlier run has left there goes."""
        if self.count == 0:
            path.unlink(missing_ok=True)
            return
        self._file.seek(0)
        with output(path) as file:
            while block := self._file.read(1 << 20):
                file.write(block)
