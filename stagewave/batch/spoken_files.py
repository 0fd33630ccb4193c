"""The recordings that ``stagewave batch asr`` is given: folders, files and ``s3://`` prefixes."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from stagewave.batch.bucket import Bucket, split_url
from stagewave.batch.folders import BucketFolder, Contents, DiskFolder, Folder, Recording, unreadable, walk
from stagewave.batch.item import Failure, Found, Item, PassedOver, shown
from stagewave.batch.naming import output_names
from stagewave.errors import WrongInput
from stagewave.record import JsonObject
from workers.settings import Settings

SUFFIXES = frozenset(
    "3gp aac aif aifc aiff amr au avi caf flac m4a m4b m4v mka mkv mov mp2 mp3 mp4 mpeg mpg mpga oga ogg"
    " ogv opus ts voc w64 wav weba webm wma wmv wv".split()
)
"""What is taken for a recording in a folder; a file that is named itself is always tried."""


class SpokenFiles:
    """What to recognise, and where each transcript goes. Iterate over it as often as need be: it holds no
    more than a folder's names at a time."""

    def __init__(
        self, sources: Sequence[str], out: Path | None, extension: str, settings: Settings
    ) -> None:
        """Raises ``WrongInput`` for sources that are not there, or do not go together."""
        in_buckets = [source for source in sources if source.startswith("s3://")]
        if in_buckets and (len(sources) > 1 or out is None):
            raise WrongInput("an s3:// prefix is given alone, and with --out")
        for source in sources:
            if not in_buckets and not os.path.exists(source):
                raise WrongInput(f"{shown(source)}: there is no such file or folder")
        self._paths = [Path(os.path.abspath(source)) for source in sources if not in_buckets]
        self._bucket_url = in_buckets[0] if in_buckets else None
        self._settings = settings
        self._extension = extension
        self._base = out if out is not None else self._common()
        self._base = Path(os.path.abspath(self._base))

    def __iter__(self) -> Iterator[Found]:
        if self._bucket_url is not None:
            bucket, prefix = split_url(self._bucket_url)
            if prefix and not prefix.endswith("/"):
                prefix += "/"
            yield from self._in_folder(BucketFolder(Bucket(bucket, self._settings), prefix, Path()))
            return
        common = self._common()
        named: dict[Path, list[Recording]] = defaultdict(list)
        seen: set[tuple[int, int]] = set()
        for path in self._paths:
            if path.is_dir():
                yield from self._in_folder(DiskFolder(path, path.relative_to(common), seen))
                continue
            try:
                size = path.stat().st_size
            except OSError as error:
                yield unreadable(str(path), error)
                continue
            named[path.parent].append(Recording(path.name, str(path), path, size))
        for parent, recordings in named.items():
            yield from self._items(parent.relative_to(common), recordings)

    def _in_folder(self, root: Folder) -> Iterator[Found]:
        for place, found in walk(root):
            yield from found.failures
            yield from self._chosen(place, found)

    def _chosen(self, place: Path, found: Contents) -> Iterator[Found]:
        chosen = []
        for recording in found.recordings:
            suffix = PurePosixPath(recording.name).suffix[1:].lower()
            # Other systems' shadows of files (._talk.mp3) are hidden, and no audio.
            if suffix in SUFFIXES and not recording.name.startswith("."):
                chosen.append(recording)
            else:
                yield PassedOver(recording.source)
        yield from self._items(place, chosen)

    def _items(self, place: Path, recordings: list[Recording]) -> Iterator[Found]:
        names = output_names([recording.name for recording in recordings], self._extension)
        for recording, name in zip(recordings, names, strict=True):
            item = Item(recording.source, self._base / place / name, recording.audio, recording.tag)
            if recording.fault is not None:
                yield replace(recording.fault, item=item)
            elif recording.size_bytes == 0:
                yield Failure(recording.source, "audio_empty", "the file holds no bytes", item)
            else:
                yield item

    def _common(self) -> Path:
        """What outputs mirror the tree below of: the one folder, or what all sources lie in."""
        if len(self._paths) == 1 and self._paths[0].is_dir():
            return self._paths[0]
        return Path(os.path.commonpath([path.parent for path in self._paths]))


class FailedFiles:
    """The recordings in a ``failures.jsonl`` that ``stagewave batch asr`` left."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Found]:
        """Raises ``WrongInput`` naming the line that is none."""
        with self._path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield self._read(number, line)

    def _read(self, number: int, line: str) -> Found:
        try:
            told = json.loads(line)
            source, error = str(told["source"]), told["error"]
            if "output" not in told:  # a folder that could not be looked into
                return Failure(source, str(error["code"]), str(error["message"]))
            audio = source if source.startswith("s3://") else Path(source)
            return Item(source, Path(told["output"]), audio, str(told.get("tag", "")))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WrongInput(
                f"line {number} of {shown(self._path.name)} is no failure of batch asr"
            ) from error


def failed_file(failure: Failure) -> JsonObject:
    """What ``FailedFiles`` reads again."""
    told: JsonObject = {"source": failure.source}
    if failure.item is not None:
        told |= {"output": str(failure.item.output), "tag": failure.item.tag}
    return told
