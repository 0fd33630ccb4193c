"""Brings a job's audio from an http(s) URL into a file, with limits on bytes, time and redirects."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

import httpx

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.net_guard import Aborted, guarded_client
from workers.settings import Settings

REDIRECTS = 5
RETRY_WAITS_S = (0.5, 2.0)
"""Before the second and the third try of what may pass."""
BLOCK_BYTES = 64 * 1024
TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
WEB_PAGES = frozenset({"text/html", "application/xhtml+xml"})
PLAIN_ENCODINGS = frozenset({"", "identity", "aws-chunked"})
"""``aws-chunked``: what uploads to object stores leave in the headers of bytes that are plain."""
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}")

__all__ = ["Aborted", "FetchedAudio", "fetch_audio"]


@dataclass(frozen=True, slots=True)
class FetchedAudio:
    """What came. ``content_type`` is the server's word, without parameters, and decides nothing."""

    size_bytes: int
    content_type: str | None


class _Passing(Exception):
    """A failure that another try may not meet."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def fetch_audio(
    settings: Settings, url: str, file: IO[bytes], abort: Callable[[], bool] = lambda: False
) -> FetchedAudio:
    """Write what ``url`` gives into ``file`` (seekable), from where it stands.

    All tries and redirects together end within ``fetch_timeout_s``. ``abort`` is asked about four times a
    second; when it says yes, ``Aborted`` is raised.

    Raises ``StagewaveError``: ``url_not_allowed``, ``fetch_failed``, ``fetch_timeout``, ``too_large``,
    ``not_audio`` (a web page), ``audio_empty``.
    """
    start = file.tell()
    deadline = time.monotonic() + settings.fetch_timeout_s
    for wait_s in (*RETRY_WAITS_S, None):
        file.seek(start)
        file.truncate()
        try:
            return _fetch_once(settings, url, file, deadline - time.monotonic(), abort)
        except _Passing as failure:
            if wait_s is None or time.monotonic() + wait_s >= deadline:
                raise StagewaveError(ErrorCode.FETCH_FAILED, failure.why) from failure
            _pause(wait_s, abort)
    raise AssertionError("the last try returns or raises")


def _fetch_once(
    settings: Settings, url: str, file: IO[bytes], timeout_s: float, abort: Callable[[], bool]
) -> FetchedAudio:
    try:
        with guarded_client(settings, timeout_s=timeout_s, abort=abort) as client:
            target = httpx.URL(url)
            for _ in range(REDIRECTS + 1):
                with client.stream("GET", target, headers={"Accept": "audio/*, */*;q=0.5"}) as answer:
                    if answer.status_code not in REDIRECT_STATUS:
                        return _take(settings, answer, file)
                    target = _next_target(answer)
    except httpx.TimeoutException as error:
        raise StagewaveError(
            ErrorCode.FETCH_TIMEOUT, f"the audio did not come within {settings.fetch_timeout_s:g} s"
        ) from error
    except httpx.TransportError as error:
        raise _Passing("the connection to the server failed") from error
    except httpx.InvalidURL as error:
        raise StagewaveError(ErrorCode.URL_NOT_ALLOWED, "this is no URL that may be used") from error
    raise StagewaveError(ErrorCode.FETCH_FAILED, f"the server redirected more than {REDIRECTS} times")


def _next_target(answer: httpx.Response) -> httpx.URL:
    location = answer.headers.get("Location", "")
    if not location:
        raise StagewaveError(
            ErrorCode.FETCH_FAILED, f"the server answered {answer.status_code} without saying where to go"
        )
    # Whether it may be used is for the guard to say, as for the first one.
    return answer.url.join(location)


def _take(settings: Settings, answer: httpx.Response, file: IO[bytes]) -> FetchedAudio:
    status = answer.status_code
    if status in TRANSIENT_STATUS:
        raise _Passing(f"the server answered {status}")
    if not 200 <= status < 300:
        raise StagewaveError(ErrorCode.FETCH_FAILED, f"the server answered {status}")
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type in WEB_PAGES:
        raise StagewaveError(
            ErrorCode.NOT_AUDIO, f"the server answered {status} with a web page, not with audio"
        )
    # Not decoded, so that few bytes can never become many.
    if answer.headers.get("Content-Encoding", "").strip().lower() not in PLAIN_ENCODINGS:
        raise StagewaveError(
            ErrorCode.FETCH_FAILED, "the server sent compressed data, which was not asked for"
        )
    limit = settings.max_upload_bytes
    declared = answer.headers.get("Content-Length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    size = 0
    for block in answer.iter_raw(BLOCK_BYTES):
        size += len(block)
        if size > limit:
            raise _too_large(limit)
        file.write(block)
    if size == 0:
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the server sent no bytes")
    return FetchedAudio(size, media_type if _MEDIA_TYPE.fullmatch(media_type) else None)


def _too_large(limit: int) -> StagewaveError:
    return StagewaveError(ErrorCode.TOO_LARGE, f"audio may have {limit} bytes at most")


def _pause(wait_s: float, abort: Callable[[], bool]) -> None:
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if abort():
            raise Aborted
        time.sleep(0.05)
