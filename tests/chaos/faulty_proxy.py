"""A proxy in front of the object store that can be told to misbehave."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Mood = Literal["good", "unavailable", "cut", "slow"]
SLOW_S = 1.5


class FaultyProxy:
    """``mood``: good; ``unavailable`` answers 503; ``cut`` breaks off in the middle of a body, either way;
    ``slow`` takes ``SLOW_S`` longer. Only uploads and downloads of results suffer: the rest is good."""

    def __init__(self, target: str) -> None:
        self.mood: Mood = "good"
        self.suffered = 0
        outer, address = self, urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                suffers = outer.mood != "good" and "/results/" in self.path
                outer.suffered += suffers
                if suffers and outer.mood == "unavailable":
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if suffers and outer.mood == "slow":
                    time.sleep(SLOW_S)
                cut = suffers and outer.mood == "cut"
                if cut and self.command == "PUT":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self._relay(body, cut)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward

            def _relay(self, body: bytes, cut: bool) -> None:
                upstream = http.client.HTTPConnection(address, timeout=30)
                # The host that the client signed for stays the host that the store sees.
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                data = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                if self.command != "HEAD" and answer.getheader("Content-Length") is None:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if cut else data)
                upstream.close()
                if cut:
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
