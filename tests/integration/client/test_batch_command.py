"""``stagewave batch`` against the real system: all is done, or told of, and it goes on after any end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import wave
from collections import Counter
from pathlib import Path

import boto3

from stagewave import Client
from tests.integration.client.conftest import (
    SAMPLES_A_TOKEN,
    batch,
    clip,
    environ_of,
    run_batch,
)
from tests.integration.conftest import System, free_port


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def texts_of_jobs(client: Client, word: str) -> Counter[str]:
    """How many jobs there are for each text that has ``word`` in it."""
    texts = (str(job.record["input"].get("text")) for job in client.jobs(type="tts", limit=100))
    return Counter(text for text in texts if word in text)


def test_folders_are_recognised_and_what_cannot_be_is_told(served: System, tmp_path: Path) -> None:
    rec = tmp_path / "rec"
    (rec / "deep er").mkdir(parents=True)
    names = ("-dash.wav", "new\nline.wav", "会议.wav", "same.wav", "same.mp3", "deep er/a.wav")
    for number, name in enumerate((*names, os.fsdecode(b"caf\xe9.wav"))):
        (rec / name).write_bytes(clip(number))
    (rec / "again.wav").write_bytes(clip(0))  # the same content under two names
    (rec / "page.mp3").write_text("<html>")
    (rec / "empty.wav").touch()
    (rec / "notes.txt").write_text("x")
    (rec / "loop").symlink_to(".")

    done = run_batch(served, tmp_path, "asr", "rec", "--out", "out", "--format", "srt", "--json")

    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert (told["done"], told["passed_over"]) == (8, 1)
    assert told["failed"] == {"not_audio": 1, "audio_empty": 1}
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.srt")}
    assert found == {
        "-dash.srt",
        "new\nline.srt",
        "会议.srt",
        "same.wav.srt",
        "same.mp3.srt",
        "deep er/a.srt",
        "again.srt",
        os.fsdecode(b"caf\xe9.srt"),
    }
    assert all("-->" in path.read_text() for path in (tmp_path / "out").rglob("*.srt"))
    failures = lines_of(tmp_path / "out/failures.jsonl")
    assert {Path(str(failure["source"])).name for failure in failures} == {"page.mp3", "empty.wav"}

    # When what failed is put right and fed back
    (rec / "page.mp3").write_bytes(clip(50))
    (rec / "empty.wav").write_bytes(clip(51))
    again = run_batch(
        served, tmp_path, "asr", "--from", "out/failures.jsonl", "--out", "out", "--format", "srt"
    )

    # Then all is done, and no failure is left
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out/page.srt").exists() and (tmp_path / "out/empty.srt").exists()
    assert not (tmp_path / "out/failures.jsonl").exists()


def test_a_run_of_other_recordings_keeps_what_failed_before(served: System, tmp_path: Path) -> None:
    for folder, content in (("one", b""), ("two", b"<html>"), ("three", clip(120))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.wav").write_bytes(content)

    ended = [run_batch(served, tmp_path, "asr", name, "--out", "out") for name in ("one", "two", "three")]

    assert [done.returncode for done in ended] == [1, 1, 0]
    failures = lines_of(tmp_path / "out/failures.jsonl")
    assert {Path(str(failure["source"])).name for failure in failures} == {"one.wav", "two.wav"}


def test_a_bucket_is_recognised(served: System, tmp_path: Path) -> None:
    settings = served.settings
    store = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key,
    )
    for key in ("a.wav", "b c/会.wav", "b c/会.mp3", "notes.txt"):
        store.put_object(Bucket=settings.s3_bucket, Key=f"uploads/r/{key}", Body=clip(100))

    done = run_batch(served, tmp_path, "asr", f"s3://{settings.s3_bucket}/uploads/r", "--out", "out")

    assert done.returncode == 0, done.stdout + done.stderr
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.txt")}
    assert found == {"a.txt", "b c/会.wav.txt", "b c/会.mp3.txt"}


def test_each_line_is_spoken_once_through_ctrl_c_and_a_kill(
    served: System, client: Client, tmp_path: Path
) -> None:
    # Given lines that take a while, and runs that are ended half way
    texts = [f"tokens={number + 5} delay_ms=20 killed" for number in range(40)]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    out = tmp_path / "out"
    asked = ("tts", "lines.txt", "--out", "out", "--parallel", "8")
    for number, (sent, ended) in enumerate(
        ((signal.SIGINT, {130}), (signal.SIGKILL, {-signal.SIGKILL})), start=1
    ):
        running = subprocess.Popen(
            batch(served, tmp_path, *asked),
            cwd=tmp_path,
            env=environ_of(served),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(list(out.glob("*.wav"))) < 10 * number:
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        running.send_signal(sent)
        _, errors = running.communicate(timeout=20)
        assert running.returncode in ended, errors
        assert "Traceback" not in errors

    # When it runs to its end
    done = run_batch(served, tmp_path, *asked, "--json")

    # Then each line has its audio, whole, of one job, and what was done was not done again
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["skipped"] >= 20 and told["done"] + told["skipped"] == 40
    for number, path in enumerate(sorted(out.glob("*.wav"))):
        with wave.open(str(path)) as audio:
            assert audio.getnframes() == SAMPLES_A_TOKEN * (number + 5)
    assert texts_of_jobs(client, "killed") == Counter(texts)


def test_a_table_names_its_outputs_and_its_wrong_lines(served: System, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_bytes(
        b"\xef\xbb\xbfid,text,voice\r\nhello,tokens=5,\r\n\r\nhello,tokens=6,slow\r\n"
        b"bad,caf\xe9,\r\nwho,tokens=7,nobody\r\nmute,!!!,\r\n"
    )

    done = run_batch(served, tmp_path, "tts", "lines.csv", "--out", "wav", "--format", "flac", "--json")

    assert done.returncode == 1
    failed = {"line_unreadable": 1, "voice_unknown": 1, "text_empty": 1}
    assert json.loads(done.stdout)["failed"] == failed
    assert "lines.csv:5: line 5 is not UTF-8" in done.stderr
    assert {path.name for path in (tmp_path / "wav").glob("*.flac")} == {"hello.flac", "hello-2.flac"}
    with (tmp_path / "wav/failures.jsonl").open("a") as file:
        file.write('{"text": "tokens=1", "audio": "x", "self": 1, "idempotency_key": "k"}\n')
    again = run_batch(served, tmp_path, "tts", "wav/failures.jsonl", "--out", "wav", "--json")
    assert json.loads(again.stdout)["failed"] == failed | {"invalid_request": 1}


def test_a_job_that_failed_in_an_earlier_run_is_made_anew(served: System, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("tokens=3000 delay_ms=20 canceled")
    asked = ("tts", "lines.txt", "--out", "out")
    running = subprocess.Popen(
        batch(served, tmp_path, *asked),
        cwd=tmp_path,
        env=environ_of(served),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with Client(served.url) as client:
        while not (mine := _jobs_of(client, "canceled")):
            assert running.poll() is None
            time.sleep(0.1)
        client.cancel(mine[0])
        running.communicate(timeout=20)
        assert running.returncode == 1

        running = subprocess.Popen(batch(served, tmp_path, *asked), cwd=tmp_path, env=environ_of(served))
        while len(mine := _jobs_of(client, "canceled")) < 2:
            assert running.poll() is None
            time.sleep(0.1)
        client.cancel(mine[0])
        assert running.wait(20) == 1


def _jobs_of(client: Client, word: str) -> list[str]:
    jobs = client.jobs_page(type="tts", limit=100).items
    return [job.id for job in jobs if word in str(job.record["input"].get("text"))]


def test_a_file_of_requests_is_one_batch_that_the_next_run_finds(
    served: System, client: Client, tmp_path: Path
) -> None:
    good = ['{"custom_id": "a", "type": "tts", "text": "tokens=5"}', '{"type": "tts", "text": "tokens=6"}']
    wrong = ['{"type": "tts", "text": "!!!"}', "{nonsense"]
    (tmp_path / "jobs.jsonl").write_text("\n".join((good[0], wrong[0], "", good[1], wrong[1])))

    done = run_batch(served, tmp_path, "run", "jobs.jsonl", "--out", "out", "--json")
    again = run_batch(served, tmp_path, "run", "jobs.jsonl", "--out", "out", "--json")

    assert done.returncode == again.returncode == 1, done.stderr
    assert json.loads(done.stdout)["id"] == json.loads(again.stdout)["id"]
    out = tmp_path / "out"
    assert [line["line"] for line in lines_of(out / "output.jsonl")] == [1, 4]
    assert [line["line"] for line in lines_of(out / "errors.jsonl")] == [2, 5]
    assert (out / "failures.jsonl").read_text().splitlines() == wrong

    # When other files are run there
    (tmp_path / "other.jsonl").write_text("\ufeff" + "\n".join(("{other nonsense", good[0])))
    (tmp_path / "empty.jsonl").write_text("\n")
    for name in ("other.jsonl", "empty.jsonl"):
        assert run_batch(served, tmp_path, "run", name, "--out", "out").returncode == 1

    # Then what failed before is there still, and goes once it is put right
    assert (out / "failures.jsonl").read_text().splitlines() == [*wrong, "{other nonsense"]
    (out / "failures.jsonl").write_text(good[0])
    fixed = run_batch(served, tmp_path, "run", "out/failures.jsonl", "--out", "out")
    assert fixed.returncode == 0 and not (out / "failures.jsonl").exists()


def test_what_concerns_all_items_ends_the_run_at_once(served: System, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("tokens=1")
    nobody = f"http://127.0.0.1:{free_port()}"

    away = run_batch(served, tmp_path, "tts", "a.txt", "--out", "out", url=nobody)
    missing = run_batch(served, tmp_path, "asr", "no-such-folder")
    nothing = run_batch(served, tmp_path, "asr")
    bucket = run_batch(served, tmp_path, "asr", "s3://no-such-bucket/a/", "--out", "out")
    no_folder = run_batch(served, tmp_path, "tts", "a.txt", "--out", "a.txt/out")

    ended = (away, missing, nothing, bucket, no_folder)
    assert [done.returncode for done in ended] == [3, 2, 2, 3, 2]
    assert "stagewave up" in away.stderr and "no-such-folder" in missing.stderr
    assert no_folder.stderr == "stagewave: a.txt/out: Not a directory\n"


def test_a_batch_that_fails_as_a_whole_says_why(served: System, tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text("\n\n")

    done = run_batch(served, tmp_path, "run", "jobs.jsonl", "--out", "out")

    assert done.returncode == 1 and "there is no line in the file" in done.stderr


def test_a_folder_without_recordings_is_no_failure(served: System, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")

    done = run_batch(served, tmp_path, "asr", ".", "--json")

    assert done.returncode == 0 and json.loads(done.stdout)["passed_over"] == 1
