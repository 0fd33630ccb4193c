"""Bytes as they come, cut into lines: at line feeds alone, for JSON may hold other breaks of Unicode."""

from __future__ import annotations

from collections.abc import Iterator


class Lines:
    """Of one answer in UTF-8."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that this piece ends."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        return (line.decode().removesuffix("\r") for line in whole)

    def end(self) -> Iterator[str]:
        """The last line, when nothing ended it."""
        rest, self._rest = self._rest, b""
        return iter((rest.decode(),) if rest else ())
