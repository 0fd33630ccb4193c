"""The one guard for outgoing http(s): which addresses this server may connect to for a client.

Audio URLs and webhook URLs come from strangers, who may try to make the server speak to its own network.
The rule: public addresses only, except for hosts that ``private_hosts`` names. A name is resolved when it
is connected to, and the address that was checked is the address that is dialled, so a name that changes
its answer gains nothing. Every refusal has the same text, and comes before any packet is sent to the
address: it tells nothing about what is there.
"""

from __future__ import annotations

import functools
import ipaddress
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpcore
import httpx

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.settings import Settings

URL_CHARS = 8192
"""Signed links of object stores have some 2,000."""
RESOLVE_S = 5.0
RESOLVE_AGAIN_S = 0.3
"""After a passing failure of the name server."""
CONNECT_S = 5.0
"""For one address: the next one of the name may answer."""
ABORT_CHECK_S = 0.25
WRITE_BYTES = 16 * 1024
USER_AGENT = "stagewave/0.1"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_ENDS_IN_NUMBER = re.compile(r"(^|\.)([0-9]+|0x[0-9a-f]*)\.?$")

# From IANA's special-purpose registries, and not from ``ipaddress.is_global``, whose answer differs
# between Python versions and lets multicast and IPv4-compatible addresses through.
_REFUSED_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",  # multicast, reserved, broadcast
            "168.63.129.16/32",  # the inner services of a cloud, at an address that looks public
        ),
    )
)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo among them, which wraps any IPv4 address
            "2001:db8::/32",
            "2002::/16",  # 6to4, which wraps any IPv4 address
            "3fff::/20",
        ),
    )
)
_MAPPED_V4 = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""How hosts with IPv6 alone reach public IPv4 addresses."""


class Aborted(Exception):
    """The caller's ``abort`` said that nobody needs the answer any more."""


def check_url(settings: Settings, url: str, field: str | None = None) -> None:
    """What can be said of a URL without asking a name server. Raises ``url_not_allowed``.

    The rest is found when it is connected to.
    """
    try:
        _check(settings, _parse(url))
    except StagewaveError as error:
        raise StagewaveError(error.code, error.message, field=field) from None


def guarded_client(
    settings: Settings, *, timeout_s: float, abort: Callable[[], bool] | None = None
) -> httpx.Client:
    """A client for one exchange, redirects included: all of it must be over in ``timeout_s`` from now,
    however slowly the other side sends. ``abort`` is asked about four times a second.

    Raises what httpx raises, ``StagewaveError(url_not_allowed)`` and ``Aborted``. It follows no redirect,
    uses no proxy, and keeps no connection.
    """
    return httpx.Client(
        transport=_GuardedTransport(settings, time.monotonic() + timeout_s, abort or (lambda: False)),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        # The deadline of the transport is shorter than any of these.
        timeout=timeout_s,
        follow_redirects=False,
        trust_env=False,
    )


class _GuardedTransport(httpx.BaseTransport):
    """httpx on top of a connection pool whose connections are made by the guard."""

    def __init__(self, settings: Settings, deadline: float, abort: Callable[[], bool]) -> None:
        self._settings = settings
        self._pool = httpcore.ConnectionPool(
            ssl_context=_tls_context(),
            max_keepalive_connections=0,
            network_backend=_GuardedBackend(settings, deadline, abort),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _check(self._settings, request.url)
        inner = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=cast(httpx.SyncByteStream, request.stream),
            extensions=request.extensions,
        )
        with _foreign_errors():
            answer = self._pool.handle_request(inner)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _foreign_errors():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


class _GuardedBackend(httpcore.NetworkBackend):
    """Makes the connections: resolves, checks, and dials what was checked."""

    def __init__(self, settings: Settings, deadline: float, abort: Callable[[], bool]) -> None:
        self._settings = settings
        self._deadline = deadline
        self._abort = abort
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        literal = _literal(host)
        within_s = min(RESOLVE_S, _left(self._deadline))
        addresses = [literal] if literal else _addresses(host, port, within_s)
        allowed = _is_named(self._settings, host, port) or all(map(_is_public, addresses))
        if not allowed or not addresses:
            # In the same words: whether a name exists in this server's network is nobody's business.
            raise _refusal()
        for address in addresses:
            if self._abort():
                raise Aborted
            try:
                plain = self._plain.connect_tcp(
                    str(address), port, timeout=min(CONNECT_S, _left(self._deadline))
                )
                return _GuardedStream(plain, self._deadline, self._abort)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        raise httpcore.ConnectError


class _GuardedStream(httpcore.NetworkStream):
    """A connection that ends at the deadline, also when each byte comes in time."""

    def __init__(self, plain: httpcore.NetworkStream, deadline: float, abort: Callable[[], bool]) -> None:
        self._plain = plain
        self._deadline = deadline
        self._abort = abort

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            left_s = _left(self._deadline)
            if self._abort():
                raise Aborted
            try:
                return self._plain.read(max_bytes, timeout=min(ABORT_CHECK_S, left_s))
            except httpcore.ReadTimeout:
                continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            self._plain.write(buffer[start : start + WRITE_BYTES], timeout=_left(self._deadline))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        # By the name of the URL, whatever address was dialled.
        secure = self._plain.start_tls(ssl_context, server_hostname, timeout=_left(self._deadline))
        return _GuardedStream(secure, self._deadline, self._abort)

    def get_extra_info(self, info: str) -> object:
        return self._plain.get_extra_info(info)

    def close(self) -> None:
        self._plain.close()


def _parse(url: str) -> httpx.URL:
    if len(url) > URL_CHARS or any(char <= " " or char in "\\\x7f" for char in url):
        raise _refusal()
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:
        raise _refusal() from None


def _check(settings: Settings, url: httpx.URL) -> None:
    port = url.port if url.port is not None else {"http": 80, "https": 443}.get(url.scheme, 0)
    if url.scheme not in ("http", "https") or url.userinfo or not 0 < port < 65536:
        raise _refusal()
    host = url.raw_host.decode("ascii")
    if _is_named(settings, host, port):
        return
    literal = _literal(host)
    # A public name has a dot in it. One without is a machine of somebody's own network.
    if not (_is_public(literal) if literal else "." in host.rstrip(".")):
        raise _refusal()


def _literal(host: str) -> IpAddress | None:
    """The address that ``host`` spells; None for a name. Raises ``url_not_allowed`` for neither.

    Of the many spellings of an IPv4 address (decimal, octal, hexadecimal, fewer than four parts) only the
    plain one is taken: the others serve nobody but those who want to be misunderstood.
    """
    if ":" not in host and not _ENDS_IN_NUMBER.search(host):
        if len(host) > 253 or not _HOST_NAME.fullmatch(host):
            raise _refusal()
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise _refusal() from None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise _refusal()
    return address


def _is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address in _MAPPED_V4 or address in _NAT64:
            return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        return address in _PUBLIC_V6 and not any(address in network for network in _REFUSED_V6)
    return not any(address in network for network in _REFUSED_V4)


def _is_named(settings: Settings, host: str, port: int) -> bool:
    """Whether ``private_hosts`` has ``host``, or ``host:port``; IPv6 addresses in brackets."""
    shown = (f"[{host}]" if ":" in host else host).lower()
    return any(entry.lower() in (shown, f"{shown}:{port}") for entry in settings.private_hosts)


def _addresses(host: str, port: int, within_s: float) -> list[IpAddress]:
    """All addresses of a name; none when it has none, or no name server tells in time."""
    answer: queue.SimpleQueue[list[IpAddress]] = queue.SimpleQueue()
    # The system's resolver knows no time limit: a thread waits for it, and is left behind when it is late.
    threading.Thread(target=lambda: answer.put(_look_up(host, port)), daemon=True).start()
    try:
        return answer.get(timeout=within_s)
    except queue.Empty:
        return []


def _look_up(host: str, port: int) -> list[IpAddress]:
    for last in (False, True):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [ipaddress.ip_address(entry[4][0]) for entry in found]
        except socket.gaierror as error:
            if error.errno != socket.EAI_AGAIN or last:
                break
            time.sleep(RESOLVE_AGAIN_S)
        except UnicodeError:
            break
    return []


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Made once: reading all the authorities takes longer than many a request."""
    return httpx.create_ssl_context()


@contextmanager
def _foreign_errors() -> Iterator[None]:
    try:
        yield
    except httpcore.TimeoutException as error:
        raise httpx.TimeoutException("the time is over") from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise httpx.TransportError("the connection failed") from error


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise httpcore.ReadTimeout
    return left_s


def _refusal() -> StagewaveError:
    return StagewaveError(ErrorCode.URL_NOT_ALLOWED, "only public http and https addresses may be used")
