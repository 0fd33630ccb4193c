"""``failures.jsonl``: what failed, in a form that the same command takes again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from stagewave.batch.item import Failure, Found, Item, PassedOver
from stagewave.batch.outputs import output
from stagewave.record import JsonObject

NAME = "failures.jsonl"

Form = Callable[[Failure], JsonObject]
"""What the command reads again, apart from the error."""


class Failures:
    """Those of one run, collected in a temporary file, since there may be many. ``keep`` puts them where
    the next run of the command finds them, beside those that earlier runs have left there and this one has
    not settled: runs of several inputs may share a place."""

    def __init__(self, form: Form, path: Path, *, fed_back: bool) -> None:
        """``fed_back``: the items are read from ``path`` itself, so that all in it is settled."""
        self._file = tempfile.TemporaryFile()
        self._form = form
        self._path = path
        self._fed_back = fed_back
        self._earlier = {name for _, name in self._lines() if name is not None}
        self._settled: set[str] = set()
        self.count = 0

    def settle(self, found: Found) -> None:
        """It is done, or was done before, or needs nothing: what earlier runs have left about it goes."""
        if not self._earlier:
            return
        # A folder that could not be looked into can be now, if something was found in it.
        about = {_place(found.source), _place(found.source.rpartition("/")[0])}
        if not isinstance(found, PassedOver):
            failure = Failure(found.source, "", "", found) if isinstance(found, Item) else found
            about.add(_name_of(self._form(failure)) or "")
        self._settled |= about & self._earlier

    def add(self, failure: Failure) -> None:
        """It takes the place of what earlier runs have left about the same."""
        self.settle(failure)
        error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
        self._file.write(json.dumps(self._form(failure) | {"error": error}).encode() + b"\n")
        self.count += 1

    def keep(self) -> None:
        """Write them down; where nothing is left that failed, there is no file."""
        for line, name in self._lines():
            if name not in self._settled:
                self._file.write(line + b"\n")
        if not self._file.tell():
            self._path.unlink(missing_ok=True)
            return
        self._file.seek(0)
        with output(self._path) as file:
            while block := self._file.read(1 << 20):
                file.write(block)

    def _lines(self) -> Iterator[tuple[bytes, str | None]]:
        """What earlier runs have left, and what each line is about, if it says so."""
        if self._fed_back:
            return
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            for line in file:
                if line := line.strip():
                    yield line, _name_of(_told(line))


def _told(line: bytes) -> JsonObject:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):  # somebody has written in it: it stays as it is
        return {}
    return told if isinstance(told, dict) else {}


def _name_of(told: JsonObject) -> str | None:
    """An item goes by its output, or the id that names that; anything else by where it was."""
    for field in ("output", "id"):
        if field in told:
            return f"{field} {told[field]}"
    return _place(str(told["source"])) if "source" in told else None


def _place(source: str) -> str:
    return f"source {source}"
