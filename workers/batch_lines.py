"""The lines of a batch's input, read from the object store piece by piece: memory does not grow with it."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.object_store import ObjectStore

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A line may carry a clip as a ``data:`` URL; longer audio has an address."""
MAX_LINES = 1_000_000
_PIECE_BYTES = 1024 * 1024
"""Read at a time: small enough to hold, large enough to make requests few."""
_BLANK = b" \t\r\n"
_FOREIGN_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Line:
    """``number`` counts from 1; ``end`` is the offset of the byte after it; ``data`` is None for one
    that is too long to be held."""

    number: int
    data: bytes | None
    end: int

    @property
    def blank(self) -> bool:
        return self.data is not None and not self.data.strip(_BLANK)


class LineReader:
    """Goes on after ``line`` lines, which had ``offset`` bytes. A line ends with ``\\n`` or where the file
    does; what else an editor left (a mark of its encoding, ``\\r``) is no part of a line."""

    def __init__(
        self, objects: ObjectStore, key: str, size_bytes: int, *, line: int = 0, offset: int = 0
    ) -> None:
        self.line = line
        self.offset = offset
        self._pieces = _pieces(objects, key, size_bytes, offset)
        self._held = bytearray()
        self._at = 0
        self._ahead: Line | None = None

    def peek(self) -> Line | None:
        """The next line, without going past it; None at the end. Raises ``not_found`` when the file is
        gone, ``invalid_request`` when it has changed, ``unsupported_media_type`` when it
        is no UTF-8 text."""
        if self._ahead is None:
            self._ahead = self._next()
        return self._ahead

    def go_on(self) -> None:
        """Past the line that ``peek`` gave."""
        if (line := self.peek()) is not None:
            self.line, self.offset, self._ahead = line.number, line.end, None

    def _next(self) -> Line | None:
        # Bytes that have been searched are not searched again: a long line costs what its length does.
        length, too_long, searched = 0, False, self._at
        while (end := self._held.find(b"\n", searched)) < 0:
            piece = next(self._pieces, None)
            if piece is None:
                end = len(self._held) - 1
                break
            if too_long or len(self._held) - self._at > MAX_LINE_BYTES:
                too_long = True
                length += len(self._held) - self._at
                self._held.clear()
            else:
                del self._held[: self._at]
            self._at, searched = 0, len(self._held)
            self._held += piece
        data = bytes(self._held[self._at : end + 1]) if not too_long else b""
        length += end + 1 - self._at
        self._at = end + 1
        if not length:
            return None
        if not self.line:
            data = self._unmarked(data)
        data = data.rstrip(b"\r\n")
        fits = not too_long and len(data) <= MAX_LINE_BYTES
        return Line(self.line + 1, data if fits else None, self.offset + length)

    def _unmarked(self, first: bytes) -> bytes:
        if first.startswith(_FOREIGN_MARKS) or b"\0" in first[:4]:
            raise StagewaveError(
                ErrorCode.UNSUPPORTED_MEDIA_TYPE, "the file must be UTF-8 text, one JSON object a line"
            )
        return first.removeprefix(codecs.BOM_UTF8)


def _pieces(objects: ObjectStore, key: str, size_bytes: int, offset: int) -> Iterator[bytes]:
    while offset < size_bytes:
        with objects.open(key, (offset, min(offset + _PIECE_BYTES, size_bytes))) as found:
            if found.total_size != size_bytes:
                raise StagewaveError(ErrorCode.INVALID_REQUEST, "the file was changed while it was read")
            piece = b"".join(found.iter_chunks())
        offset += len(piece)
        yield piece
