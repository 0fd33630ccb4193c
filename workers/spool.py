"""A process's own folder for files on their way: inputs being decoded, audio being made."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from workers.processes import process_runs

_IN_MEMORY_BYTES = 512 * 1024
"""Ten seconds of sound: most of what a batch makes never touches the disk."""


class Spool:
    """``<home>/spool/<pid>``; the folders of processes that are gone are removed at the start."""

    def __init__(self, home: Path, floor_bytes: int) -> None:
        self._floor_bytes = floor_bytes
        self._root = home / "spool"
        self.folder = self._root / str(os.getpid())
        self._remove_stale()
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def attempt_folder(self) -> Iterator[Path]:
        """A folder for one attempt, removed with all in it."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def file(self) -> Iterator[IO[bytes]]:
        """A file for one attempt: in memory while it is small, without a name when it is not, so that it is
        gone with its process."""
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(self.folder))
        try:
            yield cast(IO[bytes], file)
        finally:
            with suppress(OSError):  # on a full disk closing fails too; the error that counts is on its way
                file.close()

    def has_room(self) -> bool:
        """Whether the disk has so much left that another job may be taken."""
        return shutil.disk_usage(self.folder).free >= self._floor_bytes

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_stale(self) -> None:
        if not self._root.is_dir():
            return
        for folder in self._root.iterdir():
            if folder.name.isdigit() and not _alive(int(folder.name)):
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    # Under our own number, an earlier process has left it.
    return pid != os.getpid() and process_runs(pid)
