"""Audio from a URL, from real servers that behave and misbehave (cases S6, S7 and R8)."""

from __future__ import annotations

import gzip
import io
import socket
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from itertools import count

import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from tests.conftest import Handle, Serve
from workers import audio_fetch
from workers.audio_fetch import Aborted, FetchedAudio, fetch_audio
from workers.settings import Settings

WAV = b"RIFF$\x00\x00\x00WAVEfmt " + bytes(range(256)) * 40


def answer(body: bytes = WAV, status: int = 200, **headers: str) -> Handle:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return handle


def in_turn(*handles: Handle) -> Handle:
    """The first request gets the first, and so on; the last goes on."""
    number = count()
    return lambda request: handles[min(next(number), len(handles) - 1)](request)


def settings_for(*urls: str, **options: object) -> Settings:
    hosts = tuple(url.removeprefix("http://").partition("/")[0] for url in urls)
    return Settings(private_hosts=hosts, **options)


def fetch(url: str, settings: Settings | None = None) -> tuple[bytes, FetchedAudio]:
    file = io.BytesIO()
    fetched = fetch_audio(settings or settings_for(url), url, file)
    assert fetched.size_bytes == len(file.getvalue())
    return file.getvalue(), fetched


def failure(url: str, settings: Settings | None = None) -> StagewaveError:
    with pytest.raises(StagewaveError) as caught:
        fetch(url, settings)
    assert "127.0.0.1" not in caught.value.message
    return caught.value


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_fetch, "RETRY_WAITS_S", (0.05, 0.05))


@pytest.mark.parametrize(
    "kind", ["audio/wav", "application/octet-stream", "text/plain", "binary/octet-stream; x=y", "nonsense"]
)
def test_audio_comes_whatever_the_server_calls_it(serve: Serve, kind: str) -> None:
    data, fetched = fetch(serve(answer(Content_Type=kind)) + "/no-extension?a=b#c")
    assert data == WAV
    assert fetched.content_type == (kind.partition(";")[0] if "/" in kind else None)


def test_audio_without_a_content_type_or_a_length_comes_too(serve: Serve) -> None:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(WAV)

    assert fetch(serve(handle)) == (WAV, FetchedAudio(len(WAV), None))


def test_a_web_page_named_like_audio_is_not_audio(serve: Serve) -> None:
    url = serve(answer(b"<html>share link</html>", Content_Type="text/html; charset=utf-8"))
    error = failure(f"{url}/x.mp3")
    assert error.code is ErrorCode.NOT_AUDIO
    assert "200" in error.message


def test_three_redirects_are_followed(serve: Serve) -> None:
    end = serve(answer())
    urls = [end]
    for status in (301, 302, 307):
        urls.append(serve(answer(b"", status, Location=f"{urls[-1]}/a.wav")))
    assert fetch(urls[-1], settings_for(*urls))[0] == WAV


def test_a_relative_redirect_is_followed(serve: Serve) -> None:
    url = serve(in_turn(answer(b"", 302, Location="/b.wav"), answer()))
    assert fetch(f"{url}/a")[0] == WAV


def test_a_redirect_loop_ends_at_once(serve: Serve) -> None:
    paths = []

    def around(request: BaseHTTPRequestHandler) -> None:
        paths.append(request.path)
        answer(b"", 302, Location="/again")(request)

    started = time.monotonic()
    assert failure(serve(around)).code is ErrorCode.FETCH_FAILED
    assert len(paths) == 6
    assert time.monotonic() - started < 2


def test_a_redirect_to_nowhere_is_a_failed_fetch(serve: Serve) -> None:
    assert failure(serve(answer(b"", 302))).code is ErrorCode.FETCH_FAILED


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:1/",
        "http://2130706433/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:1/",
        "//10.0.0.1/x",
        "http://redis:6379/",
    ],
)
def test_each_redirect_is_checked_like_the_first_url(serve: Serve, location: str) -> None:
    assert failure(serve(answer(b"", 302, Location=location))).code is ErrorCode.URL_NOT_ALLOWED


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_a_refusal_of_the_server_is_told_with_its_status_and_not_tried_again(
    serve: Serve, status: int
) -> None:
    requests = count()

    def handle(request: BaseHTTPRequestHandler) -> None:
        next(requests)
        answer(b"no", status)(request)

    error = failure(serve(handle))
    assert error.code is ErrorCode.FETCH_FAILED
    assert error.message == f"the server answered {status}"
    assert next(requests) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_passing_failure_is_tried_again_twice(serve: Serve, status: int) -> None:
    bad = answer(b"", status)
    assert fetch(serve(in_turn(bad, bad, answer())))[0] == WAV
    error = failure(serve(in_turn(bad, bad, bad, answer())))
    assert (error.code, error.message) == (ErrorCode.FETCH_FAILED, f"the server answered {status}")


def test_a_connection_that_breaks_is_tried_again_from_the_start(serve: Serve) -> None:
    def half(request: BaseHTTPRequestHandler) -> None:
        answer(WAV[:5000], Content_Length=str(len(WAV)))(request)

    assert fetch(serve(in_turn(half, answer())))[0] == WAV
    assert failure(serve(half)).code is ErrorCode.FETCH_FAILED


def test_what_stood_in_the_file_before_stays(serve: Serve) -> None:
    url = serve(in_turn(answer(b"", 503), answer()))
    file = io.BytesIO(b"head")
    file.seek(4)
    fetch_audio(settings_for(url), url, file)
    assert file.getvalue() == b"head" + WAV


def test_a_port_where_nobody_listens_is_a_failed_fetch() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert failure(f"http://127.0.0.1:{unused.getsockname()[1]}/").code is ErrorCode.FETCH_FAILED


def test_a_server_that_speaks_another_protocol_is_a_failed_fetch(serve: Serve) -> None:
    assert failure(serve(lambda request: request.wfile.write(b"+PONG\r\n"))).code is ErrorCode.FETCH_FAILED


def endless(request: BaseHTTPRequestHandler, pause_s: float, block: bytes) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(block)
        time.sleep(pause_s)


def drip_header(request: BaseHTTPRequestHandler) -> None:
    while True:
        request.wfile.write(b"H")
        time.sleep(0.1)


@pytest.mark.parametrize(
    "handle",
    [lambda request: endless(request, 0.1, b"x"), drip_header, lambda request: time.sleep(3)],
    ids=["body", "header", "silence"],
)
def test_a_server_that_never_ends_is_left_at_the_deadline(serve: Serve, handle: Handle) -> None:
    url = serve(handle)
    started = time.monotonic()
    error = failure(url, settings_for(url, fetch_timeout_s=0.7))
    assert error.code is ErrorCode.FETCH_TIMEOUT
    assert "0.7 s" in error.message
    assert 0.6 < time.monotonic() - started < 1.5


def test_tries_and_redirects_share_one_deadline(serve: Serve) -> None:
    def slowly(request: BaseHTTPRequestHandler) -> None:
        time.sleep(0.4)
        answer(b"", 302, Location="/on")(request)

    url = serve(slowly)
    started = time.monotonic()
    assert failure(url, settings_for(url, fetch_timeout_s=1.0)).code is ErrorCode.FETCH_TIMEOUT
    assert time.monotonic() - started < 1.6


def test_more_bytes_than_the_limit_are_not_taken(serve: Serve) -> None:
    exact = serve(answer())
    assert fetch(exact, settings_for(exact, max_upload_bytes=len(WAV)))[0] == WAV
    for handle in (answer(), lambda request: endless(request, 0, bytes(65_536))):
        url = serve(handle)
        file = io.BytesIO()
        with pytest.raises(StagewaveError) as caught:
            fetch_audio(settings_for(url, max_upload_bytes=len(WAV) - 1), url, file)
        assert caught.value.code is ErrorCode.TOO_LARGE
        assert len(file.getvalue()) < len(WAV)


def test_a_declared_length_over_the_limit_is_refused_before_the_body(serve: Serve) -> None:
    url = serve(answer(b"", Content_Length=str(10**12)))
    assert failure(url).code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
def test_a_compressed_answer_is_refused_before_it_can_grow(serve: Serve, encoding: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    error = failure(serve(answer(bomb, Content_Encoding=encoding)))
    assert error.code is ErrorCode.FETCH_FAILED


@pytest.mark.parametrize("encoding", ["identity", "aws-chunked"])
def test_an_encoding_that_changes_nothing_is_fine(serve: Serve, encoding: str) -> None:
    assert fetch(serve(answer(Content_Encoding=encoding)))[0] == WAV


def test_a_chunked_answer_comes_whole(serve: Serve) -> None:
    def chunked(request: BaseHTTPRequestHandler) -> None:
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for start in range(0, len(WAV), 999):
            piece = WAV[start : start + 999]
            request.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        request.wfile.write(b"0\r\n\r\n")

    assert fetch(serve(chunked))[0] == WAV


def test_no_bytes_are_empty_audio(serve: Serve) -> None:
    assert failure(serve(answer(b""))).code is ErrorCode.AUDIO_EMPTY
    assert failure(serve(answer(b"", 204))).code is ErrorCode.AUDIO_EMPTY


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:6379/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://redis:6379/",
        "http://no-such-name.invalid/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "ftp://127.0.0.1/",
        "http://user@127.0.0.1/",
    ],
)
def test_addresses_inside_are_not_allowed(url: str) -> None:
    assert failure(url, Settings()).code is ErrorCode.URL_NOT_ALLOWED


def test_nothing_reaches_a_service_that_listens_inside(serve: Serve) -> None:
    requests = count()
    url = serve(lambda request: next(requests))
    assert failure(url, Settings()).code is ErrorCode.URL_NOT_ALLOWED
    assert next(requests) == 0


@pytest.mark.parametrize(
    "handle",
    [
        lambda request: endless(request, 0.01, b"x"),
        drip_header,
        lambda request: time.sleep(3),
        answer(b"", 503),
    ],
    ids=["body", "header", "silence", "between tries"],
)
def test_a_cancel_is_seen_within_half_a_second(
    serve: Serve, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_fetch, "RETRY_WAITS_S", (20.0,))
    url = serve(handle)
    started = time.monotonic()
    canceled: Callable[[], bool] = lambda: time.monotonic() - started > 0.4  # noqa: E731  # a one-line clock
    with pytest.raises(Aborted):
        fetch_audio(settings_for(url), url, io.BytesIO(), abort=canceled)
    assert time.monotonic() - started < 0.9


def test_credentials_and_cookies_of_ours_are_not_sent(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    seen = []

    def look(request: BaseHTTPRequestHandler) -> None:
        seen.append({name.lower() for name in request.headers})
        answer()(request)

    fetch(serve(look))
    assert seen == [{"host", "accept", "accept-encoding", "connection", "user-agent"}]


def test_memory_does_not_grow_with_the_audio(serve: Serve, tmp_path) -> None:
    def large(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(400):
            request.wfile.write(bytes(100_000))

    url = serve(large)
    settings = replace(settings_for(url), fetch_timeout_s=60)
    with (tmp_path / "audio").open("wb") as file:
        tracemalloc.start()
        try:
            assert fetch_audio(settings, url, file).size_bytes == 40_000_000
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()
