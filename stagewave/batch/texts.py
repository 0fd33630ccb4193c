"""The texts that ``stagewave batch tts`` is given, as lines of text, CSV or JSON."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from stagewave.batch.item import Failure, Found, Item, shown
from stagewave.batch.naming import Names
from stagewave.errors import WrongInput
from stagewave.record import JsonObject

FIELDS = ("text", "voice", "language", "instructions", "seed")
"""What a line may set besides its ``id``; a line of JSON may set any field of a TTS job."""
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_UTF8_BOM = b"\xef\xbb\xbf"
_NAME_BYTES = 200
_TOLD = "error"
"""What a ``failures.jsonl`` tells of a line beside its fields."""


class LineFault(Exception):
    """A line that is none."""


class Texts:
    """What to speak, and where it goes: a line's ``id`` names its output, else the line's number. Iterate
    over it as often as need be: no more than a line and the names given out are held. Iterating raises
    ``WrongInput`` naming the line that is another command's failure."""

    def __init__(self, path: Path, out: Path, extension: str) -> None:
        """Raises ``WrongInput`` for a file that cannot be read at all."""
        self._path = path
        self._out = Path(os.path.abspath(out))
        self._extension = extension
        readers: dict[str, Callable[[BinaryIO], Iterator[tuple[int, JsonObject | LineFault]]]] = {
            ".csv": _read_csv,
            ".jsonl": _read_jsonl,
            ".ndjson": _read_jsonl,
        }
        self._read = readers.get(path.suffix.lower(), _read_text)
        with path.open("rb") as file:
            _check_start(file)
            if self._read is _read_csv:
                _header(file)

    def __iter__(self) -> Iterator[Found]:
        names = Names()
        with self._path.open("rb") as file:
            if file.read(len(_UTF8_BOM)) != _UTF8_BOM:
                file.seek(0)
            for number, fields in self._read(file):
                source = f"{self._path.name}:{number}"
                if isinstance(fields, LineFault):
                    yield Failure(source, "line_unreadable", f"line {number} {fields}")
                    continue
                yield self._item(source, number, fields, names)

    def _item(self, source: str, number: int, fields: JsonObject, names: Names) -> Found:
        told = fields.pop(_TOLD, None)
        if isinstance(told, dict) and "text" not in fields:
            if "output" in fields:
                raise WrongInput(f"line {number} of {shown(self._path.name)} is a failure of batch asr")
            # What was no line then is none now.
            return Failure(
                str(fields.get("source", source)), str(told.get("code")), str(told.get("message"))
            )
        wanted = fields.pop("id", None)
        name = f"{number:06}" if wanted in (None, "") else str(wanted)
        if not _is_plain(name):
            return Failure(
                source, "name_not_allowed", f"line {number} has an id that cannot be a file's name"
            )
        output = self._out / f"{names.take(name)}.{self._extension}"
        return Item(source, output, fields=fields)


def failed_line(failure: Failure) -> JsonObject:
    """What ``Texts`` reads again."""
    if failure.item is None:
        return {"source": failure.source}
    return {"id": failure.item.output.stem, **failure.item.fields}


def _is_plain(name: str) -> bool:
    """Whether it is a name in a folder, and neither hidden nor another place."""
    return (
        name.isprintable()
        and not name.startswith(".")
        and not {"/", "\\"} & set(name)
        and len(name.encode()) <= _NAME_BYTES
    )


def _check_start(file: BinaryIO) -> None:
    start = file.read(4)
    file.seek(0)
    for bom, encoding in _BOMS.items():
        if start.startswith(bom):
            raise WrongInput(f"line 1: the file is {encoding}; save it as UTF-8")


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise LineFault("is not UTF-8") from None


def _read_text(file: BinaryIO) -> Iterator[tuple[int, JsonObject | LineFault]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield number, {"text": _decoded(line).strip()}
            except LineFault as fault:
                yield number, fault


def _read_jsonl(file: BinaryIO) -> Iterator[tuple[int, JsonObject | LineFault]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield number, _json_fields(_decoded(line))
            except LineFault as fault:
                yield number, fault


def _json_fields(line: str) -> JsonObject:
    try:
        fields = json.loads(line)
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()  # half a character cannot be sent
    except (ValueError, RecursionError):
        raise LineFault("is no JSON that can be sent") from None
    if not isinstance(fields, dict):
        raise LineFault("is no JSON object")
    if fields.pop("type", "tts") != "tts":
        raise LineFault("asks for another type of job than tts")
    return fields


def _read_csv(file: BinaryIO) -> Iterator[tuple[int, JsonObject | LineFault]]:
    columns = _header(file)
    lines = _CsvLines(file)
    rows = csv.reader(lines, strict=True)
    while True:
        began = lines.number + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield began, LineFault(f"is no CSV: {error}")
            continue
        if not any(cell.strip() for cell in row):
            continue
        try:
            yield began, _csv_fields(columns, row)
        except LineFault as fault:
            yield began, fault


class _CsvLines:
    """Lines for the ``csv`` module, counted. What is no UTF-8 is marked, so its row is refused."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 1  # the header

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        line = next(self._file)
        self.number += 1
        return line.decode("utf-8", "surrogateescape").replace("\0", "\ufffd")


def _csv_fields(columns: list[str], row: list[str]) -> JsonObject:
    if any("\udc80" <= c <= "\udcff" for cell in row for c in cell):
        raise LineFault("is not UTF-8")
    if len(row) > len(columns):
        raise LineFault(f"has {len(row)} cells, and there are {len(columns)} columns")
    fields: JsonObject = {name: cell for name, cell in zip(columns, row, strict=False) if cell != ""}
    if "seed" in fields:
        try:
            fields["seed"] = int(fields["seed"])
        except ValueError:
            raise LineFault("has a seed that is no number") from None
    return fields


def _header(file: BinaryIO) -> list[str]:
    """The columns, from the first line; raises ``WrongInput`` for those that are none."""
    line = file.readline().removeprefix(_UTF8_BOM)
    try:
        columns = [cell.strip().lower() for cell in next(csv.reader([line.decode()]), [])]
    except (UnicodeDecodeError, csv.Error):
        raise WrongInput("line 1: this is no CSV in UTF-8") from None
    known = ("id", *FIELDS)
    if "text" not in columns:
        raise WrongInput("line 1: it has to name the columns, and one of them has to be text")
    for column in columns:
        if column not in known or columns.count(column) > 1:
            raise WrongInput(f"line 1: {shown(column)!r} is no column; there are {', '.join(known)}")
    return columns
