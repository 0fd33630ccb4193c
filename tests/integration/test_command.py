"""The ``stagewave`` command against a server that runs: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, free_port
from tests.integration.test_up import STAGEWAVE, Up

UNKNOWN = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("served"))
    up.start()
    up.wait_ready()
    yield up
    up.interrupt()
    up.close()


@pytest.fixture(scope="module")
def spoken(served: Up) -> str:
    """A job that has succeeded."""
    done = run(served, "submit", "tts", "tokens=25", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def run(up: Up, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*STAGEWAVE, *arguments],
        env=up.environ,
        cwd=up.home.parent,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done


def silence(path: Path) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(32_000))
    return path


def test_submit_prints_the_id_alone(served: Up) -> None:
    done = run(served, "submit", "tts", "tokens=3")

    assert done.returncode == 0
    assert done.stdout.startswith("job_") and done.stdout.count("\n") == 1
    assert run(served, "get", done.stdout.strip(), "--wait").returncode == 0


def test_submit_reads_a_text_from_stdin_and_saves_the_audio(served: Up, tmp_path: Path) -> None:
    done = run(served, "submit", "tts", "-", "--out", str(tmp_path / "a.wav"), text="tokens=25")

    assert done.returncode == 0, done.stderr
    assert "saved in" in done.stderr
    with wave.open(str(tmp_path / "a.wav")) as saved:
        assert saved.getnframes() == 25 * 960


def test_submit_sends_a_file_and_prints_its_transcript(served: Up, tmp_path: Path) -> None:
    audio = str(silence(tmp_path / "a.wav"))

    done = run(served, "submit", "asr", audio, "--wait")
    saved = run(served, "submit", "asr", audio, "--format", "json", "--out", str(tmp_path / "a.json"))

    assert done.returncode == saved.returncode == 0, done.stderr + saved.stderr
    assert done.stdout.strip() == json.loads((tmp_path / "a.json").read_text())["text"]


def test_submit_says_a_file_again(served: Up, tmp_path: Path) -> None:
    audio = str(silence(tmp_path / "a.wav"))

    done = run(served, "submit", "s2st", audio, "--out", str(tmp_path / "b.flac"), "--format", "flac")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b.flac").read_bytes()[:4] == b"fLaC"


def test_the_same_idempotency_key_makes_one_job(served: Up) -> None:
    ids = {run(served, "submit", "tts", "tokens=3", "--idempotency-key", "k1").stdout for _ in range(2)}

    assert len(ids) == 1


def test_get_and_jobs_show_a_job_to_people_and_to_programs(served: Up, spoken: str) -> None:
    shown = run(served, "get", spoken)
    record = json.loads(run(served, "get", spoken, "--json").stdout)
    listed = run(served, "jobs", "--type", "tts", "--status", "succeeded")
    page = json.loads(run(served, "jobs", "--json", "--limit", "1").stdout)

    assert "succeeded" in shown.stdout and spoken in shown.stdout
    assert (record["id"], record["status"]) == (spoken, "succeeded")
    assert spoken in listed.stdout
    assert len(page["data"]) == 1 and page["next_cursor"]
    assert json.loads(run(served, "jobs", "--json", "--after", page["next_cursor"]).stdout)["data"]


def test_listen_writes_the_audio_to_a_file_or_to_stdout(served: Up, spoken: str, tmp_path: Path) -> None:
    done = run(served, "listen", spoken, "--out", str(tmp_path / "a.wav"))
    piped = subprocess.run(
        [*STAGEWAVE, "listen", spoken], env=served.environ, cwd=tmp_path, capture_output=True, timeout=60
    )

    assert done.returncode == piped.returncode == 0
    with wave.open(io.BytesIO(piped.stdout)) as heard:
        assert heard.getnframes() == 25 * 960
    assert (tmp_path / "a.wav").read_bytes() == piped.stdout


def test_listen_hears_a_job_while_it_is_made(served: Up, tmp_path: Path) -> None:
    job_id = run(served, "submit", "tts", "tokens=200 delay_ms=10", "--live").stdout.strip()

    done = run(served, "listen", job_id, "--out", str(tmp_path / "live.wav"))

    assert done.returncode == 0, done.stderr
    with wave.open(str(tmp_path / "live.wav")) as heard:
        assert heard.getnframes() == 200 * 960


def test_cancel_ends_a_job_and_waiting_for_it_is_a_failure(served: Up) -> None:
    job_id = run(served, "submit", "tts", "tokens=3000 delay_ms=20").stdout.strip()

    canceled = run(served, "cancel", job_id, "--json")

    assert canceled.returncode == 0, canceled.stderr
    assert json.loads(canceled.stdout)["status"] == "canceled"
    assert run(served, "get", job_id, "--wait").returncode == 1


def test_a_failed_job_is_exit_code_1_and_says_why(served: Up, tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_text("<html>no audio</html>")

    done = run(served, "submit", "asr", str(tmp_path / "a.mp3"), "--wait")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "not_audio" in done.stderr and done.stderr.count("\n") == 1


def test_wrong_use_is_exit_code_2(served: Up) -> None:
    for arguments in (
        ("submit", "asr", "no-such-file.wav"),
        ("submit", "tts"),
        ("jobs", "--status", "lost"),
        ("no-such-command",),
    ):
        done = run(served, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr


def test_a_wrong_setting_is_exit_code_2_and_is_named(served: Up) -> None:
    for name, value in (("STAGEWAVE_PROT", "80"), ("STAGEWAVE_PORT", "eighty")):
        done = subprocess.run(
            [*STAGEWAVE, "jobs"],
            env={**served.environ, name: value},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert name in done.stderr and done.stderr.count("\n") == 1


def test_no_server_is_exit_code_3(served: Up) -> None:
    done = run(served, "jobs", "--url", f"http://127.0.0.1:{free_port()}")

    assert done.returncode == 3
    assert "stagewave up" in done.stderr


def test_a_job_that_is_not_there_is_exit_code_4(served: Up) -> None:
    for job_id in (UNKNOWN, "nonsense", "../../healthz", "a b"):
        for command in ("get", "cancel", "listen"):
            done = run(served, command, job_id)
            assert (done.returncode, done.stdout) == (4, ""), (command, job_id, done.stderr)


def test_what_the_server_refuses_is_exit_code_5_and_names_the_field(served: Up) -> None:
    done = run(served, "submit", "tts", "tokens=3", "--voice", "nobody")

    assert done.returncode == 5
    assert "voice" in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_while_it_waits_is_exit_code_130(served: Up) -> None:
    job_id = run(served, "submit", "tts", "tokens=3000 delay_ms=20").stdout.strip()
    waiting = subprocess.Popen(
        [*STAGEWAVE, "get", job_id, "--wait"],
        env=served.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(5)  # until it has started and waits, on a busy machine too

    waiting.send_signal(signal.SIGINT)
    output, errors = waiting.communicate(timeout=10)

    assert (waiting.returncode, output) == (130, b"")
    assert b"Traceback" not in errors
    run(served, "cancel", job_id)


def test_the_doctor_finds_all_parts_of_a_running_server(served: Up) -> None:
    done = run(served, "doctor", "--json")

    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"], done.stdout
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert {"server", "thinker", "token2wav", "io", "object store"} <= {
        name for name, state in states.items() if state == "ok"
    }


def test_the_doctor_says_what_is_missing_and_how_to_get_it(served: Up) -> None:
    environ = {**served.environ, "STAGEWAVE_CONFIG": "no-such.yaml", "STAGEWAVE_PORT": str(free_port())}

    done = subprocess.run([*STAGEWAVE, "doctor"], env=environ, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert "no-such.yaml does not exist" in done.stdout
    assert "STAGEWAVE_CONFIG" in done.stdout


@pytest.mark.timeout(400)
def test_the_demo_speaks_recognises_and_leaves_nothing_running(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.environ["STAGEWAVE_CONFIG"] = str(ROOT / "configs" / "embedded.yaml")

    done = subprocess.run(
        [*STAGEWAVE, "demo"], env=up.environ, cwd=tmp_path, capture_output=True, text=True, timeout=380
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped: nothing of it runs any more" in done.stdout
    assert up.processes() == {}
    rates = [float(rate) for rate in re.findall(r"errors +([0-9.]+)% of the words", done.stdout)]
    assert len(rates) == 3 and max(rates) <= 5, done.stdout
    for name in ("spoken-live.wav", "spoken.wav", "said-again.wav", "mandarin-in-english.wav"):
        with wave.open(str(up.home / "demo" / "audio" / name)) as saved:
            assert saved.getnframes() > saved.getframerate(), name
