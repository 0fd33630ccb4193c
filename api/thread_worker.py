"""How gunicorn's threads serve us: they end when they must, and no client holds them up for ever."""

from __future__ import annotations

import json
import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Flask
from gunicorn import util
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.workers.gthread import TConn, ThreadWorker

from api.services import services_of
from api.spoken import StreamCut

_STILL_S = 30
"""A client that neither sends nor takes a byte for so long is gone, or means no good."""
_LINGER_S = 2.0
_LINGER_BYTES = 256 * 1024 * 1024
"""How long, and for how much, a refused client is heard out: one that is cut off while it still sends may
never see why."""
_SMALL_BODY_BYTES = 64 * 1024
"""What gunicorn reads away by itself, to keep a connection whose request was not read whole."""
_BOOT_FAILED = "Exception in worker process"
"""gunicorn's words for an application that could not be made."""

_log = logging.getLogger(__name__)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """A gthread worker whose waiters end when it stops, whose connections cannot stand still for ever, and
    that answers what is no HTTP as a problem too."""

    def load_wsgi(self) -> None:
        super().load_wsgi()
        app: Flask = self.app.wsgi()
        self._room = services_of(app).room
        self.wsgi: WSGIApplication = _closing_after_refusals(app)

    def is_parent_alive(self) -> bool:
        """Asked once a second; a master that was killed can send no signal."""
        if not super().is_parent_alive():
            self.alive = False
            self._end_waiters()
        return bool(self.alive)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._end_waiters()
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        self._end_waiters()
        super().handle_quit(sig, frame)

    def _end_waiters(self) -> None:
        if hasattr(self, "_room"):  # a signal may come before the application is made
            self._room.close()

    def handle(self, conn: TConn) -> object:
        # Kernel timeouts, since gunicorn's sockets block: a read or a write that stands still fails.
        still = struct.pack("ll", _STILL_S, 0)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, still)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, still)
        goes_on = super().handle(conn)
        if goes_on and self.alive:
            return goes_on
        # Closed here, and not in the main loop as gunicorn would: to hear a client out takes time, and
        # must not hold up all others.
        if self.alive:
            util.close_graceful(conn.sock, _LINGER_S, _LINGER_BYTES)
        conn.sock.close()
        conn.close = _closed_already
        return False

    def handle_error(self, req: object, client: socket.socket, addr: object, exc: BaseException) -> None:
        """What never became a request, or broke below the application."""
        if isinstance(exc, LimitRequestLine):
            status, code, detail = "414 URI Too Long", "invalid_request", "the request line is too long"
        elif isinstance(exc, LimitRequestHeaders):
            status, code, detail = (
                "431 Request Header Fields Too Large",
                "invalid_request",
                "the headers are too large",
            )
        elif isinstance(exc, ParseException):
            status, code, detail = "400 Bad Request", "invalid_request", "this is no HTTP request"
        else:
            status, code, detail = "500 Internal Server Error", "internal", "something failed here"
            _log.error("connection failed", extra={"error": type(exc).__name__})
        try:
            client.sendall(_raw_problem(status, code, detail))
        except OSError:
            pass  # the client has gone: there is nobody to tell


def _closing_after_refusals(app: WSGIApplication) -> WSGIApplication:
    """A refused request whose body is large was hardly read whole, so its connection cannot be kept: the
    answer must say so, or the client sends its next request into it. gunicorn drops the header that would
    say it, and has a method instead."""

    def call(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *more: object) -> Callable[[bytes], object]:
            if status >= "400" and _may_be_large(environ):
                start_response.__self__.force_close()  # type: ignore[attr-defined]  # a method of its Response
            return start_response(status, headers, *more)  # type: ignore[arg-type]  # exc_info, as it came

        return app(environ, start)

    return call


def _may_be_large(environ: WSGIEnvironment) -> bool:
    if "HTTP_TRANSFER_ENCODING" in environ:
        return True
    return int(environ.get("CONTENT_LENGTH") or 0) > _SMALL_BODY_BYTES


def _closed_already(graceful: bool = False) -> None:
    """In place of a connection's ``close``, which may run once."""


def _raw_problem(status: str, code: str, detail: str) -> bytes:
    body = json.dumps(
        {
            "type": f"/docs#error-{code}",
            "title": code.replace("_", " ").capitalize(),
            "status": int(status[:3]),
            "detail": detail,
            "code": code,
            "retryable": status.startswith("5"),
        }
    )
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


class ServerLog(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own words, as lines of our log."""

    def setup(self, cfg: Config) -> None:
        self.error_log = logging.getLogger("api.gunicorn")

    def exception(self, msg: str, *args: object, **kwargs: object) -> None:
        # Its messages' arguments, and tracebacks of requests, hold what a client sent.
        error = sys.exc_info()[0]
        if msg == _BOOT_FAILED:
            self.error_log.exception("the server could not start")
        elif error is not None and not issubclass(error, StreamCut):
            self.error_log.error("connection failed", extra={"error": error.__name__})

    def access(self, *args: object) -> None:
        """The application writes its own line for each request."""

    def reopen_files(self) -> None: ...

    def close_on_exec(self) -> None: ...
