"""The API before real pools: nothing is done by hand here."""

import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.integration.api.conftest import tone_wav
from tests.integration.conftest import System

SAMPLES_A_TOKEN = 960


def made(client: httpx.Client, **fields: object) -> str:
    answer = client.post("/v1/jobs", json={"type": "tts", **fields})
    assert answer.status_code == 201, answer.text
    return f"/v1/jobs/{answer.json()['id']}"


def test_jobs_go_their_whole_way_over_http(system: System):
    system.start("api", "thinker", "token2wav", "io", "scheduler")
    with httpx.Client(base_url=system.url, timeout=60) as client:
        assert client.get("/readyz").status_code == 200, client.get("/readyz").text

        # Live: heard while it is made, and the same as the file afterwards.
        path = made(client, text="tokens=163 delay_ms=5", live=True)
        heard = client.get(f"{path}/audio").content
        done = client.get(path, params={"wait": 30}).json()
        stored = client.get(f"{path}/audio").content
        assert (done["status"], done["attempts"]) == ("succeeded", {"thinker": 1, "token2wav": 1})
        assert heard[44:] == stored[44:]
        assert len(heard) == 44 + 2 * SAMPLES_A_TOKEN * 163
        assert np.frombuffer(heard[44:], "<i2").any()
        assert done["timings"]["ttfp_ms"] < done["timings"]["e2e_ms"]
        events = client.get(f"{path}/events").text
        assert "event: first_audio" in events and events.rstrip().endswith('{"status":"succeeded"}')

        # auto: asking for the audio is what makes it stream.
        path = made(client, text="tokens=100 delay_ms=5")
        began = time.monotonic()
        with client.stream("GET", f"{path}/audio") as answer:
            first_s = None
            for _ in answer.iter_raw():
                first_s = first_s or time.monotonic() - began
        assert first_s < time.monotonic() - began
        assert client.get(path, params={"wait": 30}).json()["status"] == "succeeded"

        # Hearing: an upload, and what it said.
        sent = client.post("/v1/jobs", data={"type": "asr"}, files={"file": ("a.wav", tone_wav(1.5))})
        path = sent.headers["Location"]
        assert client.get(path, params={"wait": 30}).json()["result"]["text"] == "1.500 seconds"
        assert client.get(f"{path}/transcript").json()["duration_s"] == pytest.approx(1.5)

        # Bytes that are no audio: failed, typed, not tried again.
        sent = client.post(
            "/v1/jobs", data={"type": "asr"}, files={"file": ("a.wav", b"<html></html>" * 99)}
        )
        failed = client.get(sent.headers["Location"], params={"wait": 30}).json()
        assert (failed["status"], failed["error"]["code"]) == ("failed", "not_audio")
        assert failed["attempts"] == {"thinker": 1}

        # A cancel in the middle cuts the listener off.
        path = made(client, text="tokens=5000 delay_ms=10", live=True)
        with pytest.raises(httpx.RemoteProtocolError), client.stream("GET", f"{path}/audio") as answer:
            for number, _ in enumerate(answer.iter_raw()):
                if number == 0:
                    began = time.monotonic()
                    assert httpx.post(f"{system.url}{path}/cancel").json()["status"] == "canceled"
        assert time.monotonic() - began < 3
    assert system.stop("api") == 0


def test_the_lines_in_the_documentation_work_as_they_stand(system: System, tmp_path: Path):
    system.settings = replace(system.settings, webhook_secret="whsec_" + "QUJD" * 10)
    system.start("api", "thinker", "token2wav", "io", "scheduler")
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).replace(
        "http://127.0.0.1:8000", system.url
    )
    script = 'curl() { command curl -w "%{stderr}%{http_code} %{method} %{url}\\n" "$@"; }\n' + lines
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, timeout=90
    )
    told = done.stderr.decode()
    assert done.returncode == 0, told
    codes = [line.split()[0] for line in told.splitlines()]
    assert len(codes) == lines.count("curl ")
    unexpected = [line for line in told.splitlines() if line[:1] != "2" and "/cancel" not in line]
    assert not unexpected and codes.count("409") == 1, told
    assert (tmp_path / "morning.mp3").stat().st_size > 0
