"""The object store on a real SeaweedFS."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from tests.conftest import Serve
from workers.object_store import PART_BYTES, ObjectStore
from workers.settings import Settings

MEGABYTE = 1024 * 1024


def read(objects: ObjectStore, key: str, range: tuple[int, int] | None = None) -> bytes:
    with objects.open(key, range) as stored:
        data = b"".join(stored.iter_chunks())
        assert len(data) == stored.size
        return data


def code_of(call, *arguments) -> ErrorCode:
    with pytest.raises(StagewaveError) as caught:
        call(*arguments)
    return caught.value.code


class Slowly:
    """A source of ``size`` bytes that is never in memory at once, and gives odd pieces."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int) -> bytes:
        size = min(size, self.left, 700_001)
        self.left -= size
        return bytes(size)


@pytest.mark.parametrize("size", [0, 1, 1000, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_what_is_put_comes_back(objects: ObjectStore, size: int) -> None:
    data = os.urandom(size)
    assert objects.put_file("test/a", io.BytesIO(data), "audio/wav") == size
    assert read(objects, "test/a") == data
    assert objects.size("test/a") == size


def test_a_file_is_put_from_its_path(objects: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "会议 a.wav"
    path.write_bytes(b"abc")
    assert objects.put_file("test/a", path, "audio/wav") == 3
    assert read(objects, "test/a") == b"abc"


def test_the_content_type_is_kept_in_small_and_large_objects(objects: ObjectStore) -> None:
    objects.put_bytes("test/a", b"{}", "application/json")
    objects.put_file("test/b", Slowly(PART_BYTES + 1), "audio/flac")
    with objects.open("test/a") as small, objects.open("test/b") as large:
        assert (small.content_type, large.content_type) == ("application/json", "audio/flac")


def test_no_checksum_trailer_ends_up_in_an_object(objects: ObjectStore) -> None:
    objects.put_bytes("test/a", b"x" * 100, "text/plain")
    assert read(objects, "test/a") == b"x" * 100


def test_a_range_gives_its_bytes_and_the_size_of_the_whole(objects: ObjectStore) -> None:
    objects.put_bytes("test/a", b"0123456789", "text/plain")
    assert read(objects, "test/a", (2, 5)) == b"234"
    assert read(objects, "test/a", (8, 100)) == b"89"
    with objects.open("test/a", (2, 5)) as stored:
        assert (stored.size, stored.total_size) == (3, 10)
    with objects.open("test/a") as stored:
        assert (stored.size, stored.total_size) == (10, 10)


def test_a_range_past_the_end_is_not_satisfiable(objects: ObjectStore) -> None:
    objects.put_bytes("test/a", b"0123456789", "text/plain")
    assert code_of(objects.open, "test/a", (10, 12)) is ErrorCode.RANGE_NOT_SATISFIABLE


def test_an_object_that_is_not_there_is_not_found(objects: ObjectStore, tmp_path: Path) -> None:
    assert objects.size("test/none") is None
    assert code_of(objects.open, "test/none") is ErrorCode.NOT_FOUND
    assert code_of(objects.download, "test/none", tmp_path / "x", 10) is ErrorCode.NOT_FOUND
    objects.delete("test/none")


def test_download_writes_the_file_and_refuses_what_is_too_large(
    objects: ObjectStore, tmp_path: Path
) -> None:
    objects.put_bytes("test/a", b"0123456789", "text/plain")
    path = tmp_path / "a"
    assert objects.download("test/a", path, 10) == 10
    assert path.read_bytes() == b"0123456789"
    assert code_of(objects.download, "test/a", tmp_path / "b", 9) is ErrorCode.TOO_LARGE
    assert not (tmp_path / "b").exists()


def test_listing_and_removing_take_a_prefix_and_nothing_beside_it(objects: ObjectStore) -> None:
    for key in ("test/a/1", "test/a/2", "test/ab", "test/b/1"):
        objects.put_bytes(key, b"x", "text/plain")
    found = {item.key: item for item in objects.list("test/a/")}
    assert sorted(found) == ["test/a/1", "test/a/2"]
    assert found["test/a/1"].size == 1
    assert abs(found["test/a/1"].modified - time.time()) < 30
    objects.delete_prefix("test/a/")
    assert sorted(item.key for item in objects.list("test/")) == ["test/ab", "test/b/1"]
    objects.delete("test/ab", "test/b/1", "test/none")
    assert list(objects.list("test/")) == []


def test_more_objects_than_one_page_holds_are_all_listed_and_removed(objects: ObjectStore) -> None:
    with ThreadPoolExecutor(16) as threads:
        keys = [f"test/many/{number}" for number in range(1005)]
        list(threads.map(lambda key: objects.put_bytes(key, b"", "text/plain"), keys))
    assert len(list(objects.list("test/many/"))) == 1005
    objects.delete_prefix("test/many/")
    assert list(objects.list("test/many/")) == []


def test_objects_are_put_and_read_from_many_threads_at_once(objects: ObjectStore) -> None:
    def there_and_back(number: int) -> bool:
        data = os.urandom(50_000 + number)
        objects.put_bytes(f"test/{number}", data, "text/plain")
        return read(objects, f"test/{number}") == data

    with ThreadPoolExecutor(48) as threads:
        assert all(threads.map(there_and_back, range(96)))


def test_a_large_object_goes_both_ways_in_constant_memory(objects: ObjectStore, tmp_path: Path) -> None:
    objects.put_file("test/warm", Slowly(PART_BYTES + 1), "audio/wav")
    objects.download("test/warm", tmp_path / "warm", MEGABYTE * 100)
    tracemalloc.start()
    try:
        assert objects.put_file("test/large", Slowly(80 * MEGABYTE), "audio/wav") == 80 * MEGABYTE
        assert objects.download("test/large", tmp_path / "large", 100 * MEGABYTE) == 80 * MEGABYTE
        assert tracemalloc.get_traced_memory()[1] < 3 * PART_BYTES
    finally:
        tracemalloc.stop()


class _Broken(Exception):
    pass


class Breaks(Slowly):
    """A source that fails after its bytes."""

    def read(self, size: int) -> bytes:
        data = super().read(size)
        if not data:
            raise _Broken
        return data


def open_uploads(objects: ObjectStore) -> int:
    found = objects._client().list_multipart_uploads(Bucket=objects._bucket)
    return len(found.get("Uploads", ()))


def test_an_upload_that_breaks_leaves_what_was_there_and_no_parts(objects: ObjectStore) -> None:
    objects.put_bytes("test/a", b"before", "text/plain")
    with pytest.raises(_Broken):
        objects.put_file("test/a", Breaks(2 * PART_BYTES + 5), "audio/wav")
    assert read(objects, "test/a") == b"before"
    assert open_uploads(objects) == 0


def test_uploads_that_died_are_ended_once_they_are_old(objects: ObjectStore) -> None:
    objects._client().create_multipart_upload(Bucket=objects._bucket, Key="test/died")
    assert objects.abort_stale_uploads(3600, time.time()) == 0
    assert open_uploads(objects) == 1
    time.sleep(1.1)
    assert objects.abort_stale_uploads(1, time.time()) == 1
    assert open_uploads(objects) == 0


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a//b", "../a", "a/../b", "a/.", ".a", "a b", "a\r\nb", "会议", "a?b", "a%2e", "a" * 257],
)
def test_no_users_text_gets_into_a_key_of_ours(objects: ObjectStore, key: str) -> None:
    assert code_of(objects.put_bytes, key, b"", "text/plain") is ErrorCode.INVALID_REQUEST
    assert code_of(objects.put_file, key, io.BytesIO(), "text/plain") is ErrorCode.INVALID_REQUEST
    assert code_of(objects.delete, key) is ErrorCode.INVALID_REQUEST
    assert code_of(objects.delete_prefix, key) is ErrorCode.INVALID_REQUEST
    assert code_of(lambda: list(objects.list(key))) is ErrorCode.INVALID_REQUEST


def test_an_object_that_a_user_has_named_can_be_read(objects: ObjectStore) -> None:
    objects._client().put_object(Bucket=objects._bucket, Key="uploads/会议 (1).wav", Body=b"abc")
    assert read(objects, "uploads/会议 (1).wav") == b"abc"
    assert objects.size("uploads/会议 (1).wav") == 3


@pytest.mark.parametrize("key", ["", "../a", "uploads/../inputs/x", "uploads//x", "a\nb", "a/", "ü" * 600])
def test_a_key_that_climbs_is_answered_like_one_that_is_not_there(objects: ObjectStore, key: str) -> None:
    assert code_of(objects.open, key) is code_of(objects.open, "uploads/none") is ErrorCode.NOT_FOUND


def test_wrong_keys_are_refused_as_the_stores_fault(settings: Settings) -> None:
    for wrong in (replace(settings, s3_secret_key="x" * 40), replace(settings, s3_access_key="nobody")):
        assert code_of(ObjectStore(wrong).ping) is ErrorCode.STORE_UNAVAILABLE
        assert code_of(ObjectStore(wrong).size, "test/a") is ErrorCode.STORE_UNAVAILABLE
        assert code_of(ObjectStore(wrong).ensure_bucket) is ErrorCode.STORE_UNAVAILABLE


def test_a_missing_bucket_is_made_once_by_whoever_is_first(settings: Settings) -> None:
    fresh = replace(settings, s3_bucket="made-by-a-test")
    assert code_of(ObjectStore(fresh).ping) is ErrorCode.STORE_UNAVAILABLE
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: ObjectStore(fresh).ensure_bucket(), range(4)))
    ObjectStore(fresh).ping()
    ObjectStore(fresh).put_bytes("test/a", b"x", "text/plain")


def test_writing_to_a_missing_bucket_is_the_stores_fault(settings: Settings) -> None:
    store = ObjectStore(replace(settings, s3_bucket="nobody-made-this"))
    assert code_of(store.put_bytes, "test/a", b"x", "text/plain") is ErrorCode.STORE_UNAVAILABLE
    assert code_of(store.open, "test/a") is ErrorCode.STORE_UNAVAILABLE


def test_a_store_that_is_away_is_retryable_and_said_soon(settings: Settings) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        away = replace(settings, s3_endpoint=f"http://127.0.0.1:{unused.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(StagewaveError) as caught:
            ObjectStore(away).put_bytes("test/a", b"x", "text/plain")
        assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
        assert caught.value.retry_after_s is not None
        assert "127.0.0.1" not in caught.value.message
        assert time.monotonic() - started < 10


def test_ping_does_not_wait_for_a_store_that_says_nothing(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = replace(settings, s3_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        assert code_of(ObjectStore(mute).ping) is ErrorCode.STORE_UNAVAILABLE
        assert time.monotonic() - started < 5


def test_an_object_that_breaks_off_while_it_is_read_is_the_stores_fault(
    settings: Settings, serve: Serve
) -> None:
    def half(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"x" * 500)

    store = ObjectStore(replace(settings, s3_endpoint=serve(half)))
    with store.open("test/a") as stored:
        assert code_of(lambda: list(stored.iter_chunks())) is ErrorCode.STORE_UNAVAILABLE


def test_a_store_that_keeps_less_than_it_was_sent_is_found_out(settings: Settings, serve: Serve) -> None:
    def forgetful(request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers.get("Content-Length", 0)))
        request.send_response(200)
        request.send_header("Content-Length", "3" if request.command == "HEAD" else "0")
        request.end_headers()

    store = ObjectStore(replace(settings, s3_endpoint=serve(forgetful)))
    assert code_of(store.put_bytes, "test/a", b"four", "text/plain") is ErrorCode.STORE_UNAVAILABLE


def test_a_proxy_of_the_environment_is_not_used(
    objects: ObjectStore, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    ObjectStore(settings).put_bytes("test/a", b"x", "text/plain")


def test_the_module_costs_little_until_the_first_call() -> None:
    check = (
        "import sys, workers.object_store; sys.exit('botocore' in sys.modules or 'boto3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=30).returncode == 0


def test_the_first_call_may_come_from_many_threads(settings: Settings) -> None:
    store = ObjectStore(settings)
    together = threading.Barrier(8)

    def ping() -> None:
        together.wait()
        store.ping()

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(ping) for _ in range(8)]:
            done.result()


def test_an_upload_does_not_ask_whether_it_may_begin(objects: ObjectStore) -> None:
    sent: list[dict[str, str]] = []
    client = objects._client()
    client.meta.events.register("before-send.s3", lambda request, **_: sent.append(dict(request.headers)))
    objects.put_bytes("test/a", b"sound", "audio/wav")
    assert sent and all("Expect" not in headers for headers in sent)
