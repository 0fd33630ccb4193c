"""The names of outputs: each file of a folder gets one of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath


def output_names(names: Sequence[str], extension: str) -> list[str]:
    """For the recordings of one folder, in their order: ``talk.mp3`` becomes ``talk.srt``; where that would
    be two files' name (also where a file system does not tell case apart) ``talk.mp3.srt``.

    It depends on the names alone, so the next run finds what this one has written.
    """
    stems = [PurePosixPath(name).stem for name in names]
    taken = Counter(stem.casefold() for stem in stems)
    whole = {name.casefold() for name in names}
    return [
        f"{stem if taken[stem.casefold()] == 1 and stem.casefold() not in whole else name}.{extension}"
        for name, stem in zip(names, stems, strict=True)
    ]


class Names:
    """Names that were given out in one run: the second ``a`` is ``a-2``."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        number, free = 1, name
        while free.casefold() in self._taken:
            number += 1
            free = f"{name}-{number}"
        self._taken.add(free.casefold())
        return free
