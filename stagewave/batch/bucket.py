"""Listing a bucket from this machine, with boto3: what jobs then name as ``s3://`` URLs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stagewave.errors import StoreFailed
from workers.settings import Settings

if TYPE_CHECKING:
    from botocore.client import BaseClient


@dataclass(frozen=True, slots=True)
class Key:
    """An object; ``tag`` (its ETag) changes with its content."""

    key: str
    size: int
    tag: str


class Bucket:
    """One bucket, reached as ``STAGEWAVE_S3_*`` say where they do, else as boto3 itself finds out.

    Every method raises ``StoreFailed``."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._client = _client(settings)

    def level(self, prefix: str) -> tuple[list[Key], list[str]]:
        """The keys under ``prefix`` without a further slash, and the prefixes one slash deeper."""
        keys: list[Key] = []
        prefixes: list[str] = []
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            keys += [Key(o["Key"], o["Size"], o["ETag"].strip('"')) for o in page.get("Contents", ())]
            prefixes += [found["Prefix"] for found in page.get("CommonPrefixes", ())]
        return keys, prefixes

    def find(self, key: str) -> Key | None:
        """The object with exactly this key."""
        keys, _ = self.level(key)
        return next((found for found in keys if found.key == key), None)

    def _pages(self, **asked: str) -> Iterator[dict[str, Any]]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield from self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, **asked)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error")
            raise StoreFailed(f"the object store does not list that bucket: it answers {code}") from error
        except BotoCoreError as error:
            raise StoreFailed(
                f"the object store cannot be listed ({type(error).__name__}): set STAGEWAVE_S3_ENDPOINT,"
                " STAGEWAVE_S3_ACCESS_KEY and STAGEWAVE_S3_SECRET_KEY, or what boto3 reads"
            ) from error


def split_url(url: str) -> tuple[str, str]:
    """The bucket and the rest of an ``s3://`` URL."""
    bucket, _, rest = url.removeprefix("s3://").partition("/")
    return bucket, rest


def _client(settings: Settings) -> BaseClient:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key,
        # A store of one's own is often known by an address, which can have no bucket before it.
        config=Config(s3={"addressing_style": "path" if settings.s3_endpoint else "auto"}),
    )
