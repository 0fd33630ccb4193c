"""The whole system as its supervisor runs it: a load on it, a hand to break it, a look at its books."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import redis
import soundfile
from standardwebhooks import Webhook

from stage_pipeline.engines.noop.thinker import token_at
from stage_pipeline.engines.noop.token2wav import tone
from stage_pipeline.messages import wave_to_pcm16
from stagewave.child import Child
from stagewave.client import Client
from stagewave.supervisor import Supervisor
from tests.chaos.clocks import Clocks
from tests.chaos.memory import Memory
from tests.integration.conftest import NOOP_CONFIG, free_port, wav
from workers.backend import Backend, connect_backend
from workers.books import Books, Fault
from workers.broker import connect
from workers.events import Event
from workers.job import Job
from workers.settings import Settings, to_environ
from workers.states import Status

SETTLE_S = 90.0
POLL_S = 0.05
TOLERANCE_S = 300.0
"""How old a webhook may be, or how far ahead: what the specification's libraries take."""
UNDER_LOAD = 4
"""So many jobs run when something is broken, however slow the machine is."""


@dataclass
class Row:
    """What one break came to."""

    name: str
    in_flight: int = 0
    accepted: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)
    cut_off: int = 0
    """How often a live listener lost its connection."""

    @property
    def p50_s(self) -> float:
        return sorted(self.recovery_s)[len(self.recovery_s) // 2] if self.recovery_s else 0.0

    @property
    def max_s(self) -> float:
        return max(self.recovery_s, default=0.0)


class Receiver:
    """Takes webhooks, checks each signature, and remembers which ids told of which job."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str], set[str]] = {}
        self.forged = 0
        self.clock_is_wrong = False
        """Whether the broker's clock is, by which webhooks are dated."""
        self.secret = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(204 if outer.take(body, dict(self.headers.items())) else 400)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, body: bytes, headers: dict[str, str]) -> bool:
        """False for one that is to be refused: its signature or its time is wrong."""
        lower = {name.lower(): value for name, value in headers.items()}
        sent_at = datetime.fromtimestamp(int(lower["webhook-timestamp"]), UTC)
        late_s = abs((datetime.now(UTC) - sent_at).total_seconds())
        signature = Webhook(self.secret).sign(lower["webhook-id"], sent_at, body.decode())
        if signature != lower["webhook-signature"] or (late_s > TOLERANCE_S and not self.clock_is_wrong):
            self.forged += 1
            return False
        told = json.loads(body)
        self.ids.setdefault((told["data"]["id"], told["type"]), set()).add(lower["webhook-id"])
        return True

    def close(self) -> None:
        self._server.shutdown()


class Rig:
    """One system in ``folder``. Its leases are short, so that a test does not wait long for them."""

    def __init__(self, folder: Path, **options: object) -> None:
        config = folder / "noop.yaml"
        config.write_text(NOOP_CONFIG)
        self.receiver = Receiver()
        self.clocks = Clocks(folder / "clocks")
        chosen = {
            "home": folder / "home",
            "port": free_port(),
            "config": (config,),
            "lease_s": 2.0,
            "heartbeat_s": 0.2,
            "drain_s": 2.0,
            "private_hosts": (self.receiver.address,),
            "webhook_retry_s": (0.5,) * 60,
            "webhook_timeout_s": 2.0,
        }
        settings = Settings(**{**chosen, **options})
        self.said: list[str] = []
        self.memory = Memory(self._pids)
        self._broken_at: float | None = None
        self._supervisor = Supervisor(settings, self.said.append)
        self._tending = threading.Thread(target=self._supervisor.tend_until_stopped)

    def start(self) -> None:
        with _environment(self.clocks.python):
            self._supervisor.start()
        self._supervisor.wait_ready(lambda parts: None)
        self.settings = self._supervisor.settings
        self.receiver.secret = self.settings.webhook_secret or ""
        self.backend: Backend = connect_backend(self.settings, patient_s=60)
        self._tending.start()
        self.memory.start()

    def close(self) -> None:
        self.memory.stop()
        self._supervisor.stopping = True
        if self._tending.is_alive():
            self._tending.join()
        self._supervisor.stop()
        self.receiver.close()
        # What was killed with its parent has ended; that is for the init process to see, in its own time.
        self.wait_until(lambda: self._supervisor.left_running() == [], "nothing is left running", 10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    # -- breaking --------------------------------------------------------------------------------

    def child(self, name: str) -> Child:
        return next(child for child in self._supervisor._children if child.name == name)

    def kill(self, name: str, *, down_s: float = 0.0) -> None:
        """SIGKILL; the supervisor starts it again, after ``down_s`` at the earliest."""
        child = self.child(name)
        child.deaths = 0
        self._broken_at = self._broken_at or time.time()
        pid = child.pid
        child.signal(signal.SIGKILL)
        self.wait_until(lambda: child.due_at is not None or child.pid != pid, f"{name} is buried")
        if down_s and child.due_at is not None:
            child.due_at = time.monotonic() + down_s
            time.sleep(down_s)

    def pause(self, *names: str, seconds: float) -> None:
        """SIGSTOP and SIGCONT."""
        children = [self.child(name) for name in names]
        self._broken_at = self._broken_at or time.time()
        for child in children:
            child.signal(signal.SIGSTOP)
        time.sleep(seconds)
        for child in children:
            child.signal(signal.SIGCONT)

    def admin(self) -> redis.Redis:
        return connect(self.settings.redis_url or "", patient_s=30)

    def wait_until(self, true: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n" + "\n".join(
                self.said[-10:]
            )
            time.sleep(POLL_S)

    def second_scheduler(self) -> subprocess.Popen[bytes]:
        """Beside the supervised one."""
        environ = {**os.environ, **to_environ(self.settings)}
        command = [sys.executable, "-m", "workers.scheduler"]
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def shift_broker_clock(self, seconds: int) -> bool:
        """False where that cannot be done. The broker is started anew for it, the first time."""
        broker = self.child("broker")
        if "LD_PRELOAD" not in broker._environ:
            wrong = self.clocks.broker()
            if wrong is None:
                return False
            broker._environ |= wrong
            self.kill("broker")
            self.wait_until(lambda: broker.exit_code() is None, "the broker runs again")
            self.backend.counts.by_status()  # waits until it answers
        self.receiver.clock_is_wrong = True
        self.clocks.shift_broker(seconds)
        return True

    # -- load and books --------------------------------------------------------------------------

    def through(self, name: str, break_it: Callable[[Rig], None], jobs: int = 24) -> Row:
        """Put a load on, break, wait for the end of everything, and check the books."""
        row = Row(name)
        load = Load(self, jobs)
        load.start()
        self.wait_until(lambda: self._running() >= UNDER_LOAD, "jobs are under way")
        self._broken_at = None
        began = time.time()
        break_it(self)
        broken_at = self._broken_at or began
        mended_at = time.time()
        load.wait()
        accepted = load.accepted
        row.accepted, row.job_ids = len(accepted), accepted
        ended = [self.ended(job_id) for job_id in accepted]
        row.lost = [job.id for job in ended if job.status is not Status.SUCCEEDED]
        for job in ended:
            events = self.backend.events.read(job.id, limit=20_000)
            self._count(row, job, events, broken_at, mended_at)
            if not load.sounds_right(job):
                row.doubled.append(f"{job.id}: its audio is not what its tokens say")
        row.doubled += load.wrongly_heard
        row.cut_off = load.cut_off
        self._check_webhooks(row, ended)
        self.receiver.clock_is_wrong = False
        self._check_books(row)
        return row

    def _pids(self) -> dict[str, int]:
        return {child.name: child.pid for child in list(self._supervisor._children) if child.pid}

    def _running(self) -> int:
        return self.backend.counts.by_status()[Status.RUNNING]

    def client(self) -> Client:
        return Client(self.url)

    def ended(self, job_id: str) -> Job:
        """The job once it has ended, or as it is when that takes too long."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            job = self.backend.jobs.get(job_id)
            if job.status.terminal or time.monotonic() > deadline:
                return job
            time.sleep(POLL_S)

    def _count(self, row: Row, job: Job, events: list[Event], broken_at: float, mended_at: float) -> None:
        ends = [event for event in events if event.terminal]
        if len(ends) != 1:
            row.doubled.append(f"{job.id}: {len(ends)} ends told")
        moments = [int(event.id.split("-")[0]) / 1000 for event in events]
        if job.created_at < broken_at and moments[-1] > broken_at:
            row.in_flight += 1
            if self.receiver.clock_is_wrong:
                return  # the events' times are the broker's
            after = [moment for moment in moments if moment > broken_at]
            row.recovery_s.append(max(0.0, after[0] - mended_at))

    def _check_webhooks(self, row: Row, ended: list[Job]) -> None:
        wanted = [(job.id, f"job.{job.status}") for job in ended if job.spec.webhook is not None]
        deadline = time.monotonic() + 30
        while any(key not in self.receiver.ids for key in wanted) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        row.lost += [
            f"{job_id}: {event} not told"
            for job_id, event in wanted
            if (job_id, event) not in self.receiver.ids
        ]
        row.doubled += [
            f"{key}: told under {ids}" for key, ids in self.receiver.ids.items() if len(ids) > 1
        ]
        if self.receiver.forged:
            row.doubled.append(f"{self.receiver.forged} webhooks with a wrong signature")

    def _check_books(self, row: Row) -> None:
        deadline = time.monotonic() + 15
        while (faults := Books(self.backend, grace_s=0).faults()) and time.monotonic() < deadline:
            time.sleep(0.5)  # what an attempt leaves that was cut off goes with the next sweep
            Books(self.backend, grace_s=0).repair([f for f in faults if f.kind == "orphan_object"])
        row.faults = faults


@contextmanager
def _environment(names: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class Load:
    """Clients that put in jobs of every kind, and insist on an answer as a good client does: the same
    request under the same key until it is accepted."""

    def __init__(self, rig: Rig, jobs: int) -> None:
        self._rig = rig
        self._jobs = jobs
        self._name = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._put_in, args=(turn,)) for turn in range(jobs)]
        self.tokens: dict[str, int] = {}
        self.accepted: list[str] = []
        self.wrongly_heard: list[str] = []
        self.cut_off = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(SETTLE_S)

    def sounds_right(self, job: Job) -> bool:
        count = self.tokens.get(job.id)
        if count is None or job.status is not Status.SUCCEEDED or job.result is None:
            return True
        with self._rig.backend.objects.open(str(job.result["audio_key"])) as stored:
            data = b"".join(stored.iter_chunks())
        return soundfile.read(io.BytesIO(data), dtype="int16")[0].tobytes() == expected_pcm(count)

    def _put_in(self, turn: int) -> None:
        time.sleep(turn * 0.04)
        chance = random.Random(turn)
        kind = ("tts", "tts", "live", "asr", "s2st", "tts")[turn % 6]
        hook = {"url": f"http://{self._rig.receiver.address}/", "events": ["job.succeeded", "job.failed"]}
        fields: dict[str, object] = {"type": kind.replace("live", "tts")}
        count = chance.randrange(40, 90)
        if kind in ("tts", "live"):
            fields |= {"text": f"tokens={count} delay_ms=15", "voice": "slow"}
            fields["mode"] = ("sequential", "async_chunk")[turn % 2]
        if kind == "live":
            fields["live"] = True
        job_id = self._insist(turn, fields, hook, kind in ("asr", "s2st"))
        if job_id is None:
            return
        with self._lock:
            self.accepted.append(job_id)
            if kind in ("tts", "live"):
                self.tokens[job_id] = count
        if kind == "live":
            self._listen(job_id, count)

    def _insist(
        self, turn: int, fields: dict[str, object], hook: dict[str, object], upload: bool
    ) -> str | None:
        headers = {"Idempotency-Key": f"{self._name}-{turn}"}
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            try:
                with httpx.Client(base_url=self._rig.url, timeout=15) as client:
                    if upload:
                        form = {**fields, "webhook": json.dumps(hook)}
                        answer = client.post(
                            "/v1/jobs", data=form, files={"file": wav(32_000)}, headers=headers
                        )
                    else:
                        answer = client.post("/v1/jobs", json={**fields, "webhook": hook}, headers=headers)
                if answer.status_code in (200, 201):
                    return str(answer.json()["id"])
                assert answer.status_code in (429, 500, 503), answer.text
                assert answer.status_code != 500, answer.text
            except httpx.TransportError:
                pass
            time.sleep(0.3)
        return None

    def _listen(self, job_id: str, count: int) -> None:
        """A listener who was cut off starts anew; what it hears to the end must be the whole."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            try:
                heard = httpx.get(f"{self._rig.url}/v1/jobs/{job_id}/audio?format=pcm", timeout=60)
                if heard.status_code == 200:
                    if heard.content != expected_pcm(count):
                        self.wrongly_heard.append(f"{job_id}: a listener heard something else")
                    return
            except httpx.TransportError:
                self.cut_off += 1
            time.sleep(0.3)
        self.wrongly_heard.append(f"{job_id}: its listener never heard the end")


def expected_pcm(tokens: int) -> bytes:
    """The samples of a job of the no-op engine: any token lost, doubled or moved shows."""
    waves = [tone(token_at(position), position) for position in range(tokens)]
    return wave_to_pcm16(np.concatenate(waves))


def table(rows: list[Row]) -> str:
    columns = ("jobs", "in flight", "lost", "doubled", "faults", "recovery p50 / max s")
    head = f"{'break':44} " + " ".join(columns)
    lines = [head, "-" * len(head)]
    for row in rows:
        lines.append(
            f"{row.name:44} {row.accepted:4} {row.in_flight:9} {len(row.lost):4} {len(row.doubled):7} "
            f"{len(row.faults):6} {row.p50_s:8.1f} / {row.max_s:.1f}"
        )
    return "\n".join(lines)
