"""Files that clients send for batches, and those that batches leave: records, and where their bytes lie."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.broker import broker_errors, hash_fields
from workers.id_index import IdIndex
from workers.ids import is_id, new_id
from workers.job import JsonObject
from workers.settings import Settings

_PREFIX = "file_"
PURPOSES = ("batch", "batch_output")
"""What clients send, and what batches leave."""
_INDEXES = ("all", *PURPOSES)


def new_file_id() -> str:
    return new_id(_PREFIX)


def is_file_id(text: str) -> bool:
    return is_id(text, _PREFIX)


def file_key(file_id: str) -> str:
    """Where the bytes of an uploaded file lie."""
    return f"files/{file_id}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's record. ``batch`` has made it, unless a client has sent it."""

    id: str
    key: str
    bytes: int
    filename: str
    purpose: str
    created_at: float
    batch: str | None = None

    @classmethod
    def from_hash(cls, record: Mapping[str, str]) -> StoredFile:
        return cls(
            id=record["id"],
            key=record["key"],
            bytes=int(record["bytes"]),
            filename=record["filename"],
            purpose=record["purpose"],
            created_at=int(record["created_ms"]) / 1000,
            batch=record.get("batch"),
        )

    def public(self) -> JsonObject:
        """As OpenAI's clients want it; no storage key is in it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": int(self.created_at),
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }


class FileStore:
    """A record runs out like a finished job's, unless a batch reads it."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._retention_ms = int(settings.job_retention_s * 1000)

    def add(self, file_id: str, size_bytes: int, filename: str) -> StoredFile:
        """The record of an upload whose bytes are in the object store already."""
        made = StoredFile(file_id, file_key(file_id), size_bytes, filename, "batch", time.time())
        record: dict[redis.typing.FieldT, redis.typing.EncodableT] = {
            "id": made.id,
            "key": made.key,
            "bytes": made.bytes,
            "filename": made.filename,
            "purpose": made.purpose,
            "created_ms": int(made.created_at * 1000),
        }
        with broker_errors():
            pipe = self._client.pipeline()
            pipe.hset(keys.file(file_id), mapping=record)
            pipe.pexpire(keys.file(file_id), self._retention_ms)
            for name in ("all", made.purpose):
                pipe.zadd(keys.files(name), {file_id: 0})
            pipe.execute()
        return made

    def get(self, file_id: str) -> StoredFile:
        """Raises ``not_found``."""
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.file(file_id)))
        if b"key" not in record:
            raise StagewaveError(ErrorCode.NOT_FOUND, "there is no such file")
        return StoredFile.from_hash(hash_fields(record))

    def exists(self, file_id: str) -> bool:
        with broker_errors():
            return bool(self._client.exists(keys.file(file_id)))

    def page(
        self, *, purpose: str | None, after: str | None, limit: int, oldest_first: bool
    ) -> tuple[list[StoredFile], bool]:
        """Of this purpose, or of any; and whether there are more."""
        index = self._index(purpose or "all")
        found: list[StoredFile] = []
        cursor = after
        while True:
            ids = index.ids(limit + 1, cursor, oldest_first=oldest_first)
            found += [file for file in self._get_many(ids) if file is not None]
            if len(found) > limit or len(ids) <= limit:
                return found[:limit], len(found) > limit
            cursor = ids[-1]

    def forget(self, file_id: str) -> None:
        with broker_errors():
            pipe = self._client.pipeline()
            pipe.delete(keys.file(file_id))
            for name in _INDEXES:
                pipe.zrem(keys.files(name), file_id)
            pipe.execute()

    def forget_expired(self) -> int:
        """Take ids whose records have run out from the lists; how many names there were."""
        return sum(self._index(name).forget_expired() for name in _INDEXES)

    # -- inside ----------------------------------------------------------------------------------

    def _index(self, name: str) -> IdIndex:
        return IdIndex(self._client, keys.files(name), keys.file)

    def _get_many(self, file_ids: Sequence[str]) -> list[StoredFile | None]:
        with broker_errors():
            pipe = self._client.pipeline(transaction=False)
            for file_id in file_ids:
                pipe.hgetall(keys.file(file_id))
            records = cast(list[dict[bytes, bytes]], pipe.execute() if file_ids else [])
        return [StoredFile.from_hash(hash_fields(r)) if b"key" in r else None for r in records]
