"""Outputs that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stagewave.batch.item import ItemFailed, shown
from stagewave.errors import DiskFull

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def check_folder(out: Path) -> None:
    """Make the folder of the outputs, and see that it takes any, before anything is asked of a server.

    Raises ``OSError``.
    """
    out.mkdir(parents=True, exist_ok=True)
    try:
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        # It names a file that nobody knows.
        raise OSError(error.errno, error.strerror, str(out)) from error


@contextmanager
def output(path: Path) -> Iterator[BinaryIO]:
    """A file to write ``path`` into, which becomes ``path`` at the end; it appears in no other way.

    Raises ``DiskFull`` when there is no room for this one or for any other, ``ItemFailed`` for what
    else is wrong with this one.
    """
    # Hidden, with a name of its own: another run may write the same output.
    draft = path.parent / f".{secrets.token_hex(8)}.part"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError as error:
        _remove(draft)
        if error.errno in _NO_ROOM:
            raise DiskFull("nothing more can be written there: the disk is full, or read-only") from error
        raise ItemFailed("output_failed", shown(error.strerror or type(error).__name__)) from error
    except BaseException:
        _remove(draft)
        raise


def _remove(draft: Path) -> None:
    with suppress(OSError):  # what went wrong before is what there is to tell
        draft.unlink()
