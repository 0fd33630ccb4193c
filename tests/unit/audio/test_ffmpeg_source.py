"""The confined process: what it may not do, and what becomes of a file that it dies of."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stage_pipeline.audio import ffmpeg_process, ffmpeg_source
from stage_pipeline.audio.decode import decode_audio, decode_blocks
from stage_pipeline.audio.ffmpeg_source import _Process, open_ffmpeg
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.errors import ErrorCode, StagewaveError

from .recordings import CLIP_S, media

LIMITS = DecodeLimits()


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listen_to_the_end(process: _Process) -> None:
    while process.message().kind != ffmpeg_process.END:
        pass


def test_the_confined_process_can_open_no_file_and_no_socket() -> None:
    script = """
import socket
from stage_pipeline.audio import ffmpeg_process
ffmpeg_process._confine(10)
for attempt in (lambda: open("/etc/hostname"), lambda: open("x", "w"), socket.socket):
    try:
        attempt()
    except OSError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == 3 * ["refused"]


def test_the_confined_process_sees_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEWAVE_S3_SECRET_KEY", "hidden")
    process = _Process(io.BytesIO(media("mp3")), LIMITS)
    try:
        process.expect(ffmpeg_process.READY)
        environment = Path(f"/proc/{process._process.pid}/environ").read_bytes()
    finally:
        process.end()
    assert b"PYTHONPATH" in environment
    assert b"hidden" not in environment


def test_a_small_file_that_takes_gigabytes_is_stopped() -> None:
    # An m4a whose tables tell of 400 million samples of a byte each: FFmpeg lists them all.
    data = bytearray(media("m4a"))
    count = 400_000_000
    for name, fields in (
        (b"stsz", struct.pack(">III", 0, 1, count)),
        (b"stsc", struct.pack(">IIIII", 0, 1, 1, count, 1)),
        (b"stts", struct.pack(">IIII", 0, 1, count, 1024)),
    ):
        start = data.index(name) + 4
        data[start : start + len(fields)] = fields
    began = time.monotonic()
    with pytest.raises(StagewaveError) as caught:
        decode_audio(io.BytesIO(data))
    assert caught.value.code in (ErrorCode.NOT_AUDIO, ErrorCode.AUDIO_EMPTY, ErrorCode.AUDIO_TOO_LONG)
    assert time.monotonic() - began < 10


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg_source, "_STALL_MS", 300)
    process = _Process(io.BytesIO(media("m4a")), LIMITS)
    try:
        process.expect(ffmpeg_process.READY)
        os.kill(process._process.pid, signal.SIGSTOP)
        with pytest.raises(StagewaveError) as caught:
            listen_to_the_end(process)
    finally:
        process.end()
    assert caught.value.code is ErrorCode.NOT_AUDIO
    assert not running(process._process.pid)


def test_a_process_that_crashes_makes_a_typed_error() -> None:
    process = _Process(io.BytesIO(media("m4a")), LIMITS)
    try:
        process.expect(ffmpeg_process.READY)
        os.kill(process._process.pid, signal.SIGKILL)
        with pytest.raises(StagewaveError) as caught:
            listen_to_the_end(process)
    finally:
        process.end()
    assert caught.value.code is ErrorCode.NOT_AUDIO


def test_a_process_that_cannot_start_is_our_fault_and_not_the_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for executable in ("/nonexistent/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", executable)
        with pytest.raises(StagewaveError) as caught:
            open_ffmpeg(io.BytesIO(media("mp3")), LIMITS)
        assert caught.value.code is ErrorCode.INTERNAL


def test_a_reader_that_stops_early_leaves_no_process_behind() -> None:
    blocks = decode_blocks(io.BytesIO(media("m4a")))
    next(blocks)
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    blocks.close()  # type: ignore[attr-defined]  # it is a generator
    for pid in Path(children).read_text().split():
        assert b"ffmpeg_process" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_processes_of_many_threads_do_not_meet() -> None:
    from concurrent.futures import ThreadPoolExecutor

    names = ["mp3", "m4a", "webm", "amr"] * 2
    with ThreadPoolExecutor(4) as threads:
        lengths = list(threads.map(lambda name: decode_audio(io.BytesIO(media(name))).duration_s, names))
    assert lengths[:4] == lengths[4:]
    assert all(length == pytest.approx(CLIP_S, abs=0.15) for length in lengths)
