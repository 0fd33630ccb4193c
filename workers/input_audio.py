"""Where a job's audio comes from: what a client named or sent, checked, and put where workers find it."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from typing import IO

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.data_url import decode_data_url
from workers.job import AudioSource
from workers.net_guard import check_url
from workers.settings import Settings

FIELD = "audio_url"


@dataclass(frozen=True, slots=True)
class SentBytes:
    """Audio that came with the request; ``field`` is where it stood."""

    stream: IO[bytes]
    size_bytes: int
    field: str
    filename: str | None = None

    @classmethod
    def of(cls, stream: IO[bytes], field: str, filename: str | None = None) -> SentBytes:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        return cls(stream, size, field, filename)

    def sha256(self) -> str:
        digest = hashlib.file_digest(self.stream, "sha256").hexdigest()  # type: ignore[arg-type]  # any readable binary file will do
        self.stream.seek(0)
        return digest


NamedOrSent = AudioSource | SentBytes


def sent_file(stream: IO[bytes], filename: str | None, settings: Settings) -> SentBytes:
    """The part ``file`` of a form."""
    sent = SentBytes.of(stream, "file", filename)
    if sent.size_bytes == 0:
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the file holds no bytes", field="file")
    if sent.size_bytes > settings.max_upload_bytes:
        raise StagewaveError(
            ErrorCode.TOO_LARGE, f"audio may have {settings.max_upload_bytes} bytes at most", field="file"
        )
    return sent


def named_audio(url: str, settings: Settings) -> NamedOrSent:
    """What ``audio_url`` names. Raises ``StagewaveError`` naming that field."""
    scheme = url[:8].partition(":")[0].lower()
    if scheme == "data":
        data = decode_data_url(url, settings.max_upload_bytes)
        return SentBytes(io.BytesIO(data), len(data), FIELD)
    if scheme == "s3":
        return AudioSource("s3", key=named_object(url, settings, FIELD))
    check_url(settings, url, FIELD)
    return AudioSource("url", url=url)


def named_object(url: str, settings: Settings, field: str) -> str:
    """The key of ``s3://bucket/key``, if it is one that clients may name. Whether it exists is not looked
    at here: the answer is the same for all that may be named, and the same for all that may not."""
    bucket, _, key = url[len("s3://") :].partition("/")
    plain = all(" " <= c != "\x7f" and c != "\\" for c in key) and len(key.encode()) <= 1024
    steps = key.split("/")
    if (
        url[:5].lower() != "s3://"
        or bucket != settings.s3_bucket
        or not plain
        or any(step in ("", ".", "..") for step in steps)
        or not any(key.startswith(prefix) for prefix in settings.s3_input_prefixes)
    ):
        raise StagewaveError(ErrorCode.URL_NOT_ALLOWED, "this object may not be named", field=field)
    return key
