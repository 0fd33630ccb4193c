"""Audio from the server to a file."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import BinaryIO

_UNKNOWN = 0xFFFFFFFF
"""What a WAV header says of its length while the audio is still being made."""
_DATA_AT = 36
"""Where the ``data`` chunk begins in a header without other chunks; Stagewave's live header is one."""


def save_audio(pieces: Iterable[bytes], path: Path) -> int:
    """Write the pieces as they come; the size in bytes. A live WAV gets its true length at the end.
    A file that is there already is left alone until the first piece has come."""
    coming = iter(pieces)
    first = next(coming, b"")
    with path.open("w+b") as file:
        for piece in chain((first,), coming):
            file.write(piece)
            file.flush()
        size = file.tell()
        _finish_wav(file, size)
    return size


def _finish_wav(file: BinaryIO, size: int) -> None:
    file.seek(0)
    head = file.read(_DATA_AT + 8)
    if len(head) < _DATA_AT + 8 or head[:4] != b"RIFF" or head[_DATA_AT : _DATA_AT + 4] != b"data":
        return
    if struct.unpack_from("<I", head, _DATA_AT + 4)[0] == _UNKNOWN:
        file.seek(4)
        file.write(struct.pack("<I", size - 8))
        file.seek(_DATA_AT + 4)
        file.write(struct.pack("<I", size - _DATA_AT - 8))
