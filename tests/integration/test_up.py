"""``stagewave up`` with its real processes: it starts, keeps running, ends, and finds its jobs again."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stagewave import Client, ClientError
from tests.integration.conftest import NOOP_CONFIG, free_port

STAGEWAVE = [sys.executable, "-c", "from stagewave.cli import main; main()"]


class Up:
    """One home folder, and the ``stagewave up`` that runs in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.port = free_port()
        config = folder / "noop.yaml"
        config.write_text(NOOP_CONFIG)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "STAGEWAVE_HOME": str(self.home),
            "STAGEWAVE_PORT": str(self.port),
            "STAGEWAVE_CONFIG": str(config),
            "STAGEWAVE_LEASE_S": "2",
        }
        self._folder = folder
        self._output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once; see ``wait_ready``."""
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*STAGEWAVE, "up"],
                cwd=self._folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait_ready(self) -> None:
        self.wait_said("Stagewave is ready")

    def wait_said(self, words: str, timeout_s: float = 60) -> None:
        def said() -> bool:
            assert words in self.output or self.running, f"up ended:\n{self.output}"
            return words in self.output

        until(said, f"up says {words!r}:\n{self.output}", timeout_s)

    def interrupt(self, number: int = signal.SIGINT) -> float:
        """Ask it to end; how long that took, in seconds."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(30)
        return time.monotonic() - began

    def close(self) -> None:
        if self.running:
            self.interrupt()
        until(lambda: not self.processes(), "everything has ended", 15)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}")

    def processes(self) -> dict[int, str]:
        """Everything that lives in this home, by its environment or its working folder: pid to command."""
        found = {}
        home = os.fsencode(self.home)
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                here = os.fsencode(os.readlink(entry / "cwd")).startswith(home)
                if here or b"STAGEWAVE_HOME=" + home in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended meanwhile, or is a zombie
        return found

    def pid_of(self, *words: str) -> int:
        (pid,) = [
            pid for pid, command in self.processes().items() if all(word in command for word in words)
        ]
        return pid


def until(true: Callable[[], bool], what: str, timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    yield made
    made.close()


def speak(up: Up) -> str:
    """A job from POST to its end; its id."""
    with up.client as client:
        job = client.wait(client.submit("tts", text="tokens=10").id, timeout_s=30)
    assert job.succeeded, job.record
    return job.id


def test_it_serves_until_ctrl_c_and_the_next_one_finds_the_jobs(up: Up) -> None:
    # Given an up that made a job
    up.start()
    up.wait_ready()
    job_id = speak(up)

    # When it gets a Ctrl-C
    took_s = up.interrupt()

    # Then it ends soon and well, and nothing of it lives on
    assert up.process is not None and up.process.returncode == 0, up.output
    assert took_s < 10
    assert up.processes() == {}
    assert "Traceback" not in up.output

    # And when it is started again, the job and its audio are there, and new ones are made
    up.start()
    up.wait_ready()
    with up.client as client:
        assert client.get(job_id).succeeded
        assert len(client.audio(job_id)) > 44
    speak(up)


def test_the_curl_line_that_it_prints_makes_a_job(up: Up) -> None:
    up.start()
    up.wait_ready()

    line = re.search(r"^ +(curl .*)$", up.output, re.MULTILINE)

    assert line is not None
    answer = subprocess.run(shlex.split(line[1]), capture_output=True, text=True, timeout=30)
    assert '"status":"queued"' in answer.stdout.replace(" ", ""), answer


def test_sigterm_while_it_starts_ends_it_and_leaves_nothing(up: Up) -> None:
    up.start()
    until(lambda: len(up.processes()) > 3, "some processes run")

    took_s = up.interrupt(signal.SIGTERM)

    assert took_s < 10
    assert up.processes() == {}
    assert "Traceback" not in up.output


def test_a_process_that_is_killed_is_started_again(up: Up) -> None:
    up.start()
    up.wait_ready()
    for words in (("workers.pool", "thinker"), ("valkey-server",), ("weed",), ("workers.scheduler",)):
        before = up.pid_of(*words)

        os.kill(before, signal.SIGKILL)

        until(lambda words=words, before=before: _again(up, words, before), f"{words} runs again")
    assert up.output.count("ended (signal 9); starting it again in 0.5 s") == 4
    until(lambda: _is_ready(up), "everything is ready again", 30)
    speak(up)


def test_clients_that_wait_and_follow_bear_a_killed_api(up: Up) -> None:
    # Given a client that waits for a job, and one that follows it
    up.start()
    up.wait_ready()
    with up.client as client, ThreadPoolExecutor() as threads:
        job = client.submit("tts", text="tokens=300 delay_ms=20")
        waiting = threads.submit(client.wait, job.id, timeout_s=60)
        following = threads.submit(lambda: [event.name for event in client.events(job.id)])
        time.sleep(1)

        # When the API is killed under them
        for pid, command in up.processes().items():
            if "api.server" in command:
                os.kill(pid, signal.SIGKILL)

        # Then both see the end of the job, each event once
        assert waiting.result().succeeded
        names = following.result()
    assert names[-1] == "succeeded"
    assert names.count("first_audio") == 1


def test_when_it_is_killed_itself_its_processes_end_and_the_next_one_works(up: Up) -> None:
    # Given an up that made a job
    up.start()
    up.wait_ready()
    job_id = speak(up)
    assert up.process is not None

    # When it is killed, with no chance to end anything
    up.process.kill()
    up.process.wait()

    # Then the next one waits for what is left of it, and finds its job
    up.start()
    up.wait_ready()
    with up.client as client:
        assert client.get(job_id).succeeded
    speak(up)


def test_when_it_is_killed_and_nobody_starts_it_again_nothing_lives_on(up: Up) -> None:
    up.start()
    up.wait_ready()
    assert up.process is not None

    up.process.kill()
    up.process.wait()

    until(lambda: up.processes() == {}, "everything has ended", 10)


def test_a_port_in_use_is_told_before_anything_starts(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", up.port))
        taken.listen()

        up.start()
        assert up.process is not None

        assert up.process.wait(20) == 1
    assert f"cannot serve at 127.0.0.1:{up.port}: Address already in use" in up.output
    assert not up.home.exists()


def test_a_second_one_in_the_same_home_is_refused(up: Up) -> None:
    up.start()
    up.wait_said("starting Stagewave")
    until(up.home.joinpath("up.lock").exists, "the home is locked")
    environ = {**up.environ, "STAGEWAVE_PORT": str(free_port())}

    second = subprocess.run(
        [*STAGEWAVE, "up"], env=environ, cwd=up.home.parent, capture_output=True, text=True, timeout=30
    )

    assert second.returncode == 1
    assert "already runs in" in second.stderr and "STAGEWAVE_HOME" in second.stderr
    assert up.running


def _again(up: Up, words: tuple[str, ...], before: int) -> bool:
    found = [pid for pid, command in up.processes().items() if all(word in command for word in words)]
    return bool(found) and before not in found


def _is_ready(up: Up) -> bool:
    with up.client as client:
        try:
            return bool(client.ready()["status"] == "ready")
        except ClientError:
            return False
