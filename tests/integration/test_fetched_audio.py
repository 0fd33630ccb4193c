"""Audio by URL: it is fetched outside the model's pools, and what is wrong with it ends the job typed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from stage_pipeline.stages import Task
from tests.integration.conftest import System, wav
from workers.job import AudioSource, Job
from workers.results import input_key
from workers.settings import Settings
from workers.states import Status


class _Files(BaseHTTPRequestHandler):
    """Answers by path, as other people's servers do."""

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name.startswith("redirect"):
            left = int(name.removeprefix("redirect"))
            self._send(302, b"", Location="/plain" if left == 1 else f"/redirect{left - 1}")
        elif name == "loop":
            self._send(302, b"", Location="/loop")
        elif name == "page.mp3":
            self._send(200, b"<html><body>Please log in</body></html>", Content_Type="text/html")
        elif name == "missing":
            self._send(404, b"nothing here")
        elif name == "drip":
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"R")
                    self.wfile.flush()
                    time.sleep(0.2)
            except OSError:
                return
        else:
            kinds = {"plain": "audio/wav", "octets": "application/octet-stream", "text": "text/plain"}
            self._send(200, wav(), Content_Type=kinds.get(name, "audio/wav"))

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def noop_settings(noop_settings: Settings, files: str) -> Settings:
    return replace(noop_settings, private_hosts=(files.removeprefix("http://"),), fetch_timeout_s=2.0)


@pytest.fixture
def hear(running: System) -> Callable[[str], Job]:
    """Run an ASR job on a URL to its end."""

    def run(url: str) -> Job:
        job = running.submit(Task.ASR, text="", audio=AudioSource("url", url=url))
        return running.wait_end(job.id, 20)

    return run


@pytest.mark.parametrize("path", ["plain", "octets", "text", "redirect3", "no-extension?x=1"])
def test_real_audio_is_taken_whatever_it_is_called(
    running: System, hear: Callable[[str], Job], files: str, path: str
) -> None:
    done = hear(f"{files}/{path}")
    assert done.status is Status.SUCCEEDED, done.error
    assert done.attempts == {"fetch": 1, "thinker": 1}
    assert running.backend.objects.size(input_key(done.id)) == len(wav())


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("page.mp3", "not_audio"),
        ("missing", "fetch_failed"),
        ("loop", "fetch_failed"),
        ("drip", "fetch_timeout"),
    ],
)
def test_what_cannot_be_fetched_ends_the_job_typed(
    hear: Callable[[str], Job], files: str, path: str, code: str
) -> None:
    began = time.monotonic()
    failed = hear(f"{files}/{path}")
    assert failed.status is Status.FAILED
    assert failed.error and failed.error["code"] == code
    assert failed.attempts == {"fetch": 1}
    assert time.monotonic() - began < 10
    if path == "missing":
        assert "404" in str(failed.error["message"])


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
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "ftp://127.0.0.1/",
        "http://user@127.0.0.1/",
    ],
)
def test_an_address_of_our_own_network_is_not_fetched(hear: Callable[[str], Job], url: str) -> None:
    failed = hear(url)
    assert failed.error and failed.error["code"] == "url_not_allowed"
    assert failed.attempts == {"fetch": 1}


def test_a_fetch_is_canceled_within_a_second(running: System, files: str) -> None:
    job = running.submit(Task.ASR, text="", audio=AudioSource("url", url=f"{files}/drip"))
    running.wait_until(lambda: running.job(job.id).started_at is not None, "it fetches")
    running.backend.jobs.cancel(job.id)
    running.wait_until(
        lambda: not any(w.running for w in running.backend.pools.workers() if w.stage == "io"),
        "the slot is free",
        timeout_s=4,
    )
    assert running.backend.objects.size(input_key(job.id)) is None
