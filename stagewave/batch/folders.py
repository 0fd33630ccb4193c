"""Folders of recordings, on a disk or behind an ``s3://`` prefix: what lies in one, one at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stagewave.batch.item import Failure, shown

if TYPE_CHECKING:
    from stagewave.batch.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Recording:
    """A file in a folder, which need not be audio; ``fault`` is why it cannot be looked at."""

    name: str
    source: str
    audio: Path | str
    size_bytes: int
    tag: str = ""
    fault: Failure | None = None


@dataclass(slots=True)
class Contents:
    """What one folder holds, by name; ``failures`` are folders that cannot be looked into."""

    recordings: list[Recording] = field(default_factory=list)
    folders: list[Folder] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class Folder(Protocol):
    """``place`` is its path below the root that was asked for."""

    place: Path

    def contents(self) -> Contents: ...


class DiskFolder:
    """A folder on this machine. Symbolic links are followed, but into no folder twice."""

    def __init__(self, path: Path, place: Path, seen: set[tuple[int, int]]) -> None:
        self.path = path
        self.place = place
        self._seen = seen

    def contents(self) -> Contents:
        found = Contents()
        try:
            here = self.path.stat()
            if (here.st_dev, here.st_ino) in self._seen:
                return found
            self._seen.add((here.st_dev, here.st_ino))
            with os.scandir(self.path) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            found.failures.append(unreadable(str(self.path), error))
            return found
        for entry in entries:
            self._add(entry, found)
        return found

    def _add(self, entry: os.DirEntry[str], found: Contents) -> None:
        path = self.path / entry.name
        try:
            status = entry.stat()
        except OSError as error:
            failure = unreadable(str(path), error)
            found.recordings.append(Recording(entry.name, str(path), path, 0, fault=failure))
            return
        if stat.S_ISDIR(status.st_mode):
            found.folders.append(DiskFolder(path, self.place / entry.name, self._seen))
        elif stat.S_ISREG(status.st_mode):  # a pipe would never end, and a socket is no file
            found.recordings.append(Recording(entry.name, str(path), path, status.st_size))


class BucketFolder:
    """The keys under a prefix up to the next slash."""

    def __init__(self, bucket: Bucket, prefix: str, place: Path) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self.place = place

    def contents(self) -> Contents:
        found = Contents()
        keys, prefixes = self._bucket.level(self._prefix)
        for key in keys:
            name = key.key[len(self._prefix) :]
            if name:  # a key that ends in a slash stands for the folder itself
                url = f"s3://{self._bucket.name}/{key.key}"
                found.recordings.append(Recording(name, url, url, key.size, key.tag))
        for prefix in prefixes:
            name = prefix[len(self._prefix) : -1]
            if name in ("", ".", "..") or "\0" in name:
                url = f"s3://{self._bucket.name}/{prefix}"
                found.failures.append(
                    Failure(url, "name_not_allowed", "an output cannot lie in a folder of this name")
                )
            else:
                found.folders.append(BucketFolder(self._bucket, prefix, self.place / name))
        return found


def walk(root: Folder) -> Iterator[tuple[Path, Contents]]:
    """A folder and all below it, in an order that stays the same."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        found = folder.contents()
        waiting.extend(reversed(found.folders))
        yield folder.place, found


def unreadable(source: str, error: OSError) -> Failure:
    return Failure(source, "unreadable", shown(error.strerror or type(error).__name__))
