"""The object store: inputs and results in one bucket of any S3 (SeaweedFS, MinIO, AWS), through boto3."""

from __future__ import annotations

import builtins
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.s3_client import AT_ONCE, PATIENT, SOON, connect, store_errors, unavailable
from workers.settings import Settings

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.response import StreamingBody

PART_BYTES = 8 * 1024 * 1024
"""Held in memory for each upload under way. S3 takes no parts under 5 MiB, and 10,000 of them at most."""
BLOCK_BYTES = 256 * 1024
_OWN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*/?")
_OWN_KEY_CHARS = 256
_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing; ``modified`` in Unix seconds."""

    key: str
    size: int
    modified: float


class StoredObject:
    """An object, or a range of one, being read. Close it, or use it in a ``with``."""

    def __init__(self, body: StreamingBody, size: int, total_size: int, content_type: str) -> None:
        self._body = body
        self.size = size
        """Bytes that ``iter_chunks`` gives."""
        self.total_size = total_size
        """Bytes of the whole object."""
        self.content_type = content_type

    def iter_chunks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Raises ``storeunavailable`` when the object does not come whole."""
        with store_errors():
            yield from self._body.iter_chunks(block_bytes)

    def close(self) -> None:
        self._body.close()

    def __enter__(self) -> StoredObject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ObjectStore:
    """One bucket. Safe to share between threads; connects at the first call.

    Every method raises ``StagewaveError``: ``storeunavailable`` when the store is away or refuses us. What
    is written, listed or removed has keys that we made ourselves; what is read may have any sound key.
    """

    def __init__(self, settings: Settings, *, patient: bool = True) -> None:
        """``patient``: a call may take a minute before it gives up; else some five seconds, for a web
        request whose client wants to know."""
        self._settings = settings
        self._limits = PATIENT if patient else SOON
        self._bucket = settings.s3_bucket
        self._lock = threading.Lock()
        self._clients: dict[bool, BaseClient] = {}

    def put_file(self, key: str, source: IO[bytes] | Path, content_type: str) -> int:
        """Store all that can be read from ``source``, however much that is; its size in bytes.

        Either the whole object is there afterwards, or what was there before.
        """
        _check_own_key(key)
        if isinstance(source, Path):
            with source.open("rb") as file:
                return self.put_file(key, file, content_type)
        part = bytearray()
        _read_part(source, part)
        if len(part) < PART_BYTES:
            self.put_bytes(key, part, content_type)
            return len(part)
        size = self._put_parts(key, part, source, content_type)
        self._check_size(key, size)
        return size

    def put_bytes(self, key: str, data: bytes | bytearray, content_type: str) -> None:
        _check_own_key(key)
        with store_errors():
            stored = self._client().put_object(
                Bucket=self._bucket, Key=key, Body=data, ContentType=content_type
            )
        # An object sent whole has its MD5 as its tag, unless the store encrypts: that says more than a
        # second call about its size, and costs less.
        if stored.get("ETag", "").strip('"') != hashlib.md5(data, usedforsecurity=False).hexdigest():
            self._check_size(key, len(data))

    def open(self, key: str, range: tuple[int, int] | None = None) -> StoredObject:
        """``range``: the first byte, and the one after the last. Raises ``not_found``, and
        ``range_not_satisfiable`` for a range that begins past the end."""
        _check_key(key)
        wanted = {"Range": f"bytes={range[0]}-{range[1] - 1}"} if range else {}
        with store_errors():
            found = self._client().get_object(Bucket=self._bucket, Key=key, **wanted)
        size = found["ContentLength"]
        total = int(found["ContentRange"].rpartition("/")[2]) if "ContentRange" in found else size
        return StoredObject(
            found["Body"], size, total, found.get("ContentType", "application/octet-stream")
        )

    def download(self, key: str, path: Path, limit_bytes: int) -> int:
        """Bring an object into a file; its size in bytes. Raises ``not_found``, ``too_large``."""
        with self.open(key) as found:
            if found.size > limit_bytes:
                raise StagewaveError(ErrorCode.TOO_LARGE, f"the object has more than {limit_bytes} bytes")
            with path.open("wb") as file:
                for block in found.iter_chunks():
                    file.write(block)
            return found.size

    def size(self, key: str) -> int | None:
        """In bytes; None when there is no such object."""
        _check_key(key)
        try:
            with store_errors():
                size: int = self._client().head_object(Bucket=self._bucket, Key=key)["ContentLength"]
                return size
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise

    def delete(self, *keys: str) -> None:
        """Those that are not there are passed over."""
        # One by one: deleting many at once needs a checksum that not every store takes in the same form.
        for key in keys:
            _check_own_key(key)
            with store_errors():
                self._client().delete_object(Bucket=self._bucket, Key=key)

    def delete_prefix(self, prefix: str) -> None:
        for item in self.list(prefix):
            self.delete(item.key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        _check_own_key(prefix)
        with store_errors():
            for page in self._pages("list_objects_v2", Prefix=prefix):
                for found in page.get("Contents", ()):
                    yield ObjectInfo(found["Key"], found["Size"], found["LastModified"].timestamp())

    def abort_stale_uploads(self, older_than_s: float, now: float) -> int:
        """End uploads whose process died half way and whose parts still take space; how many there were."""
        count = 0
        with store_errors():
            for upload in self._uploads():
                if now - upload["Initiated"].timestamp() > older_than_s:
                    self._abort(upload["Key"], upload["UploadId"])
                    count += 1
        return count

    def open_uploads(self, older_than_s: float, now: float) -> builtins.list[str]:
        """Keys of uploads that began so long ago and have not ended."""
        with store_errors():
            began = {str(upload["Key"]): upload["Initiated"].timestamp() for upload in self._uploads()}
        return [key for key, moment in began.items() if now - moment > older_than_s]

    def load(self) -> None:
        """Make the client, which takes a while and 27 MB, before a job waits for it. An error is left to
        who uses it."""
        with suppress(StagewaveError), store_errors():
            self._client()

    def ensure_bucket(self) -> None:
        """Make the bucket unless it is there."""
        try:
            with store_errors():
                client = self._client()
                client.head_bucket(Bucket=self._bucket)
                return
        except StagewaveError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
        region = self._settings.s3_region
        # The region that S3 began with is the one that must not be named.
        where = (
            {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        with store_errors():
            try:
                client.create_bucket(Bucket=self._bucket, **where)
            except client.exceptions.BucketAlreadyOwnedByYou:
                pass  # another process was quicker

    def ping(self) -> None:
        """Whether the bucket can be reached with our keys, answered within seconds."""
        try:
            with store_errors():
                self._client(hurried=True).head_bucket(Bucket=self._bucket)
        except StagewaveError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise unavailable("the bucket does not exist") from error
            raise

    def _uploads(self) -> Iterator[dict[str, Any]]:
        for page in self._pages("list_multipart_uploads"):
            yield from page.get("Uploads", ())

    def _put_parts(self, key: str, part: bytearray, source: IO[bytes], content_type: str) -> int:
        """``part`` has the first one in it, and then each of the others."""
        client = self._client()
        where = {"Bucket": self._bucket, "Key": key}
        with store_errors():
            upload_id = client.create_multipart_upload(**where, ContentType=content_type)["UploadId"]
        try:
            size = 0
            parts: list[dict[str, object]] = []
            while part:
                size += len(part)
                number = len(parts) + 1
                with store_errors():
                    stored = client.upload_part(**where, UploadId=upload_id, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": stored["ETag"]})
                _read_part(source, part)
            with store_errors():
                client.complete_multipart_upload(
                    **where, UploadId=upload_id, MultipartUpload={"Parts": parts}
                )
        except BaseException:
            self._abort(key, upload_id)
            raise
        return size

    def _abort(self, key: str, upload_id: str) -> None:
        try:
            with store_errors():
                self._client().abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
        except StagewaveError:
            pass  # It is gone already, or the store is away: then ``abort_stale_uploads`` finds it later.

    def _check_size(self, key: str, size: int) -> None:
        if self.size(key) != size:
            raise unavailable("the object store did not keep what was sent")

    def _pages(self, operation: str, **arguments: str) -> Iterator[dict[str, Any]]:
        pages: Iterator[dict[str, Any]] = (
            self._client().get_paginator(operation).paginate(Bucket=self._bucket, **arguments)
        )
        return pages

    def _client(self, hurried: bool = False) -> BaseClient:
        with self._lock:
            if hurried not in self._clients:
                self._clients[hurried] = connect(self._settings, AT_ONCE if hurried else self._limits)
            return self._clients[hurried]


def _read_part(source: IO[bytes], part: bytearray) -> None:
    """Fill ``part`` with the next one; it is whole unless the source ends before."""
    part.clear()
    while len(part) < PART_BYTES and (block := source.read(min(BLOCK_BYTES, PART_BYTES - len(part)))):
        part += block


def _check_own_key(key: str) -> None:
    """No user's text gets into a key: a key that could hold any is a fault of ours."""
    if len(key) > _OWN_KEY_CHARS or not _OWN_KEY.fullmatch(key):
        raise StagewaveError(ErrorCode.INVALID_REQUEST, "this is no key of an object of ours")


def _check_key(key: str) -> None:
    steps = key.split("/")
    printable = all(char >= " " and char != "\x7f" for char in key)
    if not printable or len(key.encode()) > _KEY_BYTES or any(step in ("", ".", "..") for step in steps):
        raise StagewaveError(ErrorCode.NOT_FOUND, "the object does not exist")
