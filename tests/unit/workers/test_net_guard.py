"""The guard for outgoing http(s): what is refused, before a packet is sent, and what is let through."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from tests.conftest import Serve
from workers import net_guard
from workers.net_guard import Aborted, check_url, guarded_client
from workers.settings import Settings

NOWHERE = Settings()

REFUSED = [
    # cases.md S7
    "http://127.0.0.1:6379/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://redis:6379/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "ftp://example.com/",
    "http://user@127.0.0.1/",
    # other spellings of addresses
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.0.1./",
    "http://0/",
    "http://0x7f000001/",
    "http://127。0。0。1/",
    "http://①②⑦.0.0.1/",
    "http://127%2e0.0.1/",
    "http://[::127.0.0.1]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/",
    "http://8.8.8.8.0x8/",
    "http://134744072/",
    # addresses that wrap others
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001::1]/",
    # networks that are nobody's or somebody's own
    "http://0.0.0.0/",
    "http://10.1.2.3/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://168.63.129.16/",
    "http://[::]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    # names that are not public
    "http://localhost/",
    "http://localhost./",
    "http://minio:9000/",
    # forms
    "",
    "http://",
    "http:///x",
    "http:example.com",
    "//example.com/",
    "example.com",
    "javascript:alert(1)",
    "http://user:secret@example.com/",
    "http://example.com@127.0.0.1/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://example.com\\@127.0.0.1/",
    "http://exam ple.com/",
    "http://example.com/\r\nHost: x",
    " http://example.com/",
    "http://a..b/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http://example.com/" + "a" * 9000,
]

ALLOWED = [
    "http://example.com/a.wav",
    "https://EXAMPLE.com:8443/a?b=c#d",
    "https://münchen.de/",
    "http://8.8.8.8/",
    "http://172.32.0.1/",
    "http://[2606:4700::1111]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[64:ff9b::8.8.8.8]/",
    "http://1.example.com/",
    "http://a_b.example.com/",
    "https://bucket.s3.eu-central-1.amazonaws.com/k%20y?X-Amz-Signature=" + "a" * 2000,
]


def refusal(call: Callable[[], object]) -> StagewaveError:
    with pytest.raises(StagewaveError) as caught:
        call()
    assert caught.value.code is ErrorCode.URL_NOT_ALLOWED
    return caught.value


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Every address that a connection is tried to; those of others are not reached."""
    tried: list[tuple] = []
    connect = socket.create_connection

    def note(address: tuple, *arguments: object, **options: object) -> socket.socket:
        tried.append(address)
        if not address[0].startswith("127."):
            raise ConnectionRefusedError
        return connect(address, *arguments, **options)

    monkeypatch.setattr(socket, "create_connection", note)
    return tried


Answers = Callable[[str], list[str]]


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], None]:
    """Lets a function of the test's own say what a name's addresses are."""
    real = socket.getaddrinfo

    def use(answers: Answers) -> None:
        def look_up(host: str, port: int, *arguments: object, **options: object) -> list[tuple]:
            if host[0].isdigit() or ":" in host:
                return real(host, port, *arguments, **options)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port)) for found in answers(host)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return use


@pytest.fixture
def names(name_server: Callable[[Answers], None]) -> dict[str, list[str]]:
    """Names and their addresses; no other is found."""
    known: dict[str, list[str]] = {}

    def answers(host: str) -> list[str]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return known[host]

    name_server(answers)
    return known


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_not_public_is_refused_at_once(url: str) -> None:
    error = refusal(lambda: check_url(NOWHERE, url, "audio_url"))
    assert error.field == "audio_url"


@pytest.mark.parametrize("url", ALLOWED)
def test_what_is_public_passes(url: str) -> None:
    check_url(NOWHERE, url)


@pytest.mark.parametrize("url", [url for url in REFUSED if url.startswith("http://")])
def test_the_client_refuses_it_too_and_connects_to_nothing(url: str, connections: list[tuple]) -> None:
    with guarded_client(NOWHERE, timeout_s=5) as client:
        with pytest.raises((StagewaveError, httpx.InvalidURL)):
            client.get(url)
    assert connections == []


def test_every_refusal_says_the_same(names: dict[str, list[str]]) -> None:
    names["inside.example"] = ["10.0.0.1"]
    with guarded_client(NOWHERE, timeout_s=5) as client:
        texts = {
            refusal(lambda url=url: client.get(url)).message
            for url in ("http://127.0.0.1/", "http://inside.example/", "http://no-such-name.example/")
        }
    assert len(texts) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"])
def test_a_name_that_leads_inside_is_refused_before_connecting(
    address: str, names: dict[str, list[str]], connections: list[tuple]
) -> None:
    names["inside.example"] = [address]
    with guarded_client(NOWHERE, timeout_s=5) as client:
        refusal(lambda: client.get("http://inside.example/"))
    assert connections == []


def test_a_name_that_leads_outside_and_inside_is_refused(
    names: dict[str, list[str]], connections: list[tuple]
) -> None:
    names["both.example"] = ["8.8.8.8", "127.0.0.1"]
    with guarded_client(NOWHERE, timeout_s=5) as client:
        refusal(lambda: client.get("http://both.example/"))
    assert connections == []


def test_a_name_that_changes_its_answer_gains_nothing(
    name_server: Callable[[Answers], None], connections: list[tuple]
) -> None:
    answers = iter([["198.51.0.1"], ["127.0.0.1"]])
    name_server(lambda host: next(answers))
    with guarded_client(NOWHERE, timeout_s=1) as client:
        with pytest.raises(httpx.TransportError):
            client.get("http://rebinds.example/")
    assert connections == [("198.51.0.1", 80)]
    assert next(answers) == ["127.0.0.1"]


def test_refusing_takes_no_longer_for_a_port_that_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))

        def slowest(port: int) -> float:
            times = []
            for _ in range(5):
                started = time.monotonic()
                with guarded_client(NOWHERE, timeout_s=5) as client:
                    refusal(lambda: client.get(f"http://127.0.0.1:{port}/"))
                times.append(time.monotonic() - started)
            return min(times)

        assert slowest(server.getsockname()[1]) < 0.1
        assert slowest(unused.getsockname()[1]) < 0.1


def test_a_name_server_that_does_not_answer_is_not_waited_for(
    name_server: Callable[[Answers], None],
) -> None:
    over = threading.Event()
    name_server(lambda host: ["8.8.8.8"] if over.wait(30) else [])
    started = time.monotonic()
    with guarded_client(NOWHERE, timeout_s=0.5) as client:
        refusal(lambda: client.get("http://slow-dns.example/"))
    assert time.monotonic() - started < 2
    over.set()


def test_a_passing_failure_of_the_name_server_is_asked_again(
    name_server: Callable[[Answers], None], serve: Serve
) -> None:
    calls = []

    def answers(host: str) -> list[str]:
        calls.append(host)
        if len(calls) == 1:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return ["127.0.0.1"]

    name_server(answers)
    port = serve(ok).rpartition(":")[2]
    with guarded_client(Settings(private_hosts=("own.example",)), timeout_s=5) as client:
        assert client.get(f"http://own.example:{port}/").status_code == 200
    assert calls == ["own.example"] * 2


def ok(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "2")
    request.end_headers()
    request.wfile.write(b"ok")


def settings_for(url: str) -> Settings:
    return Settings(private_hosts=(url.removeprefix("http://"),))


def test_a_private_host_that_is_named_may_be_used_on_its_port_alone(serve: Serve) -> None:
    named, other = serve(ok), serve(ok)
    check_url(settings_for(named), named)
    with guarded_client(settings_for(named), timeout_s=5) as client:
        assert client.get(named).text == "ok"
        refusal(lambda: client.get(other))
        refusal(lambda: client.get(named.replace("127.0.0.1", "localhost")))


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("minio", "http://minio:9000/", True),
        ("MinIO:9000", "http://minio:9000/", True),
        ("minio:9000", "http://minio/", False),
        ("minio:80", "http://minio/", True),
        ("minio:443", "https://minio/", True),
        ("minio", "http://minio2/", False),
        ("minio", "http://minio.evil/x@minio", True),  # a public name, judged when it is resolved
        ("10.0.0.1", "http://10.0.0.1/", True),
        ("10.0.0.1", "http://10.0.0.2/", False),
        ("10.0.0.1", "http://167772161/", False),
        ("[::1]:8000", "http://[::1]:8000/", True),
        ("[::1]:8000", "http://[::1]/", False),
        ("[fd00::a]", "http://[FD00::A]:5/", True),
    ],
)
def test_private_hosts_match_by_name_and_port(entry: str, url: str, allowed: bool) -> None:
    settings = Settings(private_hosts=(entry,))
    if allowed:
        check_url(settings, url)
    else:
        refusal(lambda: check_url(settings, url))


def test_host_header_and_path_are_those_of_the_url(serve: Serve) -> None:
    seen = []

    def look(request: BaseHTTPRequestHandler) -> None:
        seen.append((request.headers["Host"], request.path, request.headers["Accept-Encoding"]))
        ok(request)

    url = serve(look)
    with guarded_client(settings_for(url), timeout_s=5) as client:
        client.get(f"{url}/a%20b?c=d")
    assert seen == [(url.removeprefix("http://"), "/a%20b?c=d", "identity")]


def test_redirects_are_not_followed(serve: Serve, connections: list[tuple]) -> None:
    def elsewhere(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", "http://127.0.0.1:1/")
        request.end_headers()

    url = serve(elsewhere)
    with guarded_client(settings_for(url), timeout_s=5) as client:
        assert client.get(url).status_code == 302
    assert len(connections) == 1


def test_a_proxy_of_the_environment_is_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    url = serve(ok)
    with guarded_client(settings_for(url), timeout_s=5) as client:
        assert client.get(url).text == "ok"


def drip_header(request: BaseHTTPRequestHandler) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000:
        request.wfile.write(bytes([byte]))
        time.sleep(0.05)


def drip_body(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(1000):
        request.wfile.write(b"x")
        time.sleep(0.05)


def say_nothing(request: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


@pytest.mark.parametrize("handle", [drip_header, drip_body, say_nothing])
def test_all_is_over_at_the_deadline_though_each_byte_comes_in_time(
    serve: Serve, handle: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    url = serve(handle)
    started = time.monotonic()
    with guarded_client(settings_for(url), timeout_s=0.6) as client:
        with pytest.raises(httpx.TimeoutException):
            client.get(url)
    assert 0.5 < time.monotonic() - started < 1.5


@pytest.mark.parametrize("handle", [drip_header, drip_body, say_nothing])
def test_abort_ends_it_within_half_a_second(
    serve: Serve, handle: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    url = serve(handle)
    started = time.monotonic()
    with guarded_client(
        settings_for(url), timeout_s=20, abort=lambda: time.monotonic() - started > 0.3
    ) as client:
        with pytest.raises(Aborted):
            client.get(url)
    assert time.monotonic() - started < 0.3 + 0.5


def test_a_server_that_does_not_read_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        started = time.monotonic()
        with guarded_client(settings_for(url), timeout_s=0.6) as client:
            with pytest.raises(httpx.TimeoutException):
                client.post(url, content=bytes(50_000_000))
        assert time.monotonic() - started < 1.5


def test_a_closed_port_of_a_named_host_is_a_transport_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with guarded_client(settings_for(url), timeout_s=5) as client:
            with pytest.raises(httpx.TransportError) as caught:
                client.get(url)
    assert "127.0.0.1" not in str(caught.value)


def test_the_next_address_of_a_name_is_tried(names: dict[str, list[str]], serve: Serve) -> None:
    port = serve(ok).rpartition(":")[2]
    names["two.example"] = ["127.0.0.2", "127.0.0.1"]
    with guarded_client(Settings(private_hosts=("two.example",)), timeout_s=5) as client:
        assert client.get(f"http://two.example:{port}/").text == "ok"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate of ``tls.example``."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tls.example".split()
    command += ["-addext", "subjectAltName=DNS:tls.example", "-keyout", str(path), "-out", f"{path}.crt"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no openssl program to make a certificate with")
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture
def tls_port(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A TLS server on loopback whose certificate is trusted; it notes the name it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ok(self)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # a client that refuses the certificate leaves
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    net_guard._tls_context.cache_clear()
    yield server.server_port
    server.shutdown()
    server.server_close()
    net_guard._tls_context.cache_clear()


def test_the_certificate_must_be_that_of_the_name_though_an_address_is_dialled(
    tls_port: int, names: dict[str, list[str]]
) -> None:
    names["tls.example"] = names["other.example"] = ["127.0.0.1"]
    settings = Settings(private_hosts=("tls.example", "other.example", "127.0.0.1"))
    with guarded_client(settings, timeout_s=5) as client:
        assert client.get(f"https://tls.example:{tls_port}/").text == "ok"
        for host in ("other.example", "127.0.0.1"):
            with pytest.raises(httpx.TransportError):
                client.get(f"https://{host}:{tls_port}/")


def test_abort_and_deadline_hold_under_tls(tls_port: int, names: dict[str, list[str]]) -> None:
    names["tls.example"] = ["127.0.0.1"]
    with guarded_client(
        Settings(private_hosts=("tls.example",)), timeout_s=5, abort=lambda: True
    ) as client:
        with pytest.raises(Aborted):
            client.get(f"https://tls.example:{tls_port}/")
