"""The server as a process: how it starts and how it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.integration.api.conftest import ROOT, Servers
from tests.integration.api.test_waiters import hang, wait_for_seats


def start(**environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "api.server"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=20,
    )


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"STAGEWAVE_CONFIG": "/nowhere/nope.yaml"}, "deploy config nope.yaml does not exist"),
        ({"STAGEWAVE_PORTT": "1"}, "STAGEWAVE_PORTT is not a setting"),
        ({}, "STAGEWAVE_REDIS_URL is not set"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(environ, words):
    done = start(**environ)
    assert (done.returncode, done.stderr.strip()) == (78, f"cannot start: {words}")


def test_ctrl_c_ends_it_with_clients_waiting(servers: Servers):
    api = servers.start()
    clients = hang(api, api.make()["id"], 60)
    wait_for_seats(api, 60)
    began = time.monotonic()
    os.kill(api.pid, signal.SIGINT)
    assert api.wait() == 0
    assert time.monotonic() - began < 4
    for client in clients:
        client.close()


def test_a_worker_whose_master_was_killed_ends_too(servers: Servers):
    api = servers.start()
    clients = hang(api, api.make()["id"], 60)
    wait_for_seats(api, 60)
    os.kill(api.pid, signal.SIGKILL)
    api.wait()
    for client in clients:
        client.settimeout(6)
        while client.recv(65536):
            pass
        client.close()
