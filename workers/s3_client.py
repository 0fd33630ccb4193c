"""boto3's client for the object store, how patient it is, and the mapping of its errors to ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.settings import Settings

if TYPE_CHECKING:
    from botocore.client import BaseClient

_RETRY_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a call may take, and how often it is tried."""

    connect_s: float
    read_s: float
    tries: int


PATIENT = Limits(connect_s=2, read_s=20, tries=3)
SOON = Limits(connect_s=1, read_s=5, tries=1)
AT_ONCE = Limits(connect_s=1, read_s=3, tries=1)


def connect(settings: Settings, limits: Limits) -> BaseClient:
    """Nothing is opened before the first call."""
    # Imported late: it takes longer than the rest of the API's start.
    import boto3
    from botocore.config import Config
    from botocore.handlers import add_expect_header

    own = settings.s3_endpoint is not None
    config = Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        retries={"mode": "standard", "total_max_attempts": limits.tries},
        max_pool_connections=64,
        # Otherwise trailing checksums are sent that other stores than AWS refuse, or keep as data.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if own else "auto"},
        # A proxy in the environment is meant for the world outside, not for a store that we run.
        proxies={} if own else None,
    )
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key,
        config=config,
    )
    # Asking first whether a body may be sent costs a round trip, and most bodies are small.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


@contextmanager
def store_errors() -> Iterator[None]:
    """Map what the client library raises to ``not_found``, ``range_not_satisfiable`` and
    ``store_unavailable``."""
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code = error.response.get("Error", {}).get("Code")
        if status == 416:
            raise StagewaveError(
                ErrorCode.RANGE_NOT_SATISFIABLE, "the object does not have these bytes"
            ) from error
        if status == 404 and code != "NoSuchBucket":
            raise StagewaveError(ErrorCode.NOT_FOUND, "the object does not exist") from error
        raise unavailable("the object store refused a request") from error
    except (BotoCoreError, HTTPError) as error:
        raise unavailable("the object store cannot be reached") from error


def unavailable(why: str) -> StagewaveError:
    return StagewaveError(ErrorCode.STORE_UNAVAILABLE, why, retry_after_s=_RETRY_AFTER_S)
