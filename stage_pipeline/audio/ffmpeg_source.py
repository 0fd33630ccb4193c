"""Every other format through FFmpeg, in a confined process: a file can hurt nothing but its own job."""

from __future__ import annotations

import io
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np

from stage_pipeline.audio import ffmpeg_process as child
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.source import AudioSource, Block
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave

_STALL_MS = 60_000
"""Longest wait for a word of the process: only a file that keeps FFmpeg busy for nothing takes so long."""
_CPU_BASE_S = 60
_SLOWEST_SPEED = 20
"""Times real time. Decoders of honest audio reach hundreds; a slower one is busy with something else."""
_READ_BYTES = 1024 * 1024
_MESSAGE_BYTES = 64 * 1024 * 1024
"""More than any codec's frame. What the process says is not trusted: a file may have taken it over."""

_DTYPES = {
    "u8": np.uint8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "flt": np.float32,
    "dbl": np.float64,
}


def open_ffmpeg(file: BinaryIO, limits: DecodeLimits) -> AudioSource:
    """Raises ``StagewaveError``: ``not_audio``, ``no_audio_stream``, ``audio_too_long``."""
    process = _Process(file, limits)
    try:
        process.expect(child.READY)
        source = process.expect(child.SOURCE)
    except BaseException:
        process.end()
        raise
    name = source.payload.decode("ascii", "replace")
    return AudioSource(name, source.rate_hz, source.channels, _blocks(process, limits))


def _blocks(process: _Process, limits: DecodeLimits) -> Generator[Block]:
    try:
        while (message := process.message()).kind != child.END:
            limits.check_form(message.rate_hz, message.channels)
            yield Block(message.rate_hz, _to_float(message))
    finally:
        process.end()


@dataclass(frozen=True, slots=True)
class _Message:
    kind: bytes
    payload: bytes
    rate_hz: int
    channels: int
    sample_format: str


class _Process:
    """A running ``ffmpeg_process``, and what it says."""

    def __init__(self, file: BinaryIO, limits: DecodeLimits) -> None:
        self._limits = limits
        self._heard = bytearray()
        self._ready = False
        out, child_out = os.pipe()
        self._out = open(out, "rb", buffering=0)
        self._poll = select.poll()
        self._poll.register(out, select.POLLIN)
        cpu_s = _CPU_BASE_S + int(limits.duration_s / _SLOWEST_SPEED)
        try:
            with _regular(file) as stdin:
                self._process = subprocess.Popen(  # noqa: S603  # every argument is our own
                    [sys.executable, "-P", "-S", child.__file__, str(limits.duration_s), str(cpu_s)],
                    stdin=stdin,
                    stdout=child_out,
                    stderr=subprocess.DEVNULL,
                    # It needs nothing but PyAV, and our environment holds secrets.
                    env={"PYTHONPATH": str(Path(av.__file__).parent.parent)},
                    # Ctrl-C in a terminal lets a worker finish its jobs, and so this one.
                    process_group=0,
                )
        except OSError:
            self._out.close()
            raise _cannot_start() from None
        finally:
            os.close(child_out)

    def message(self) -> _Message:
        """The next message that is not about a failure; a failure is raised."""
        kind, size, rate_hz, channels, name = child.HEAD.unpack(self._take(child.HEAD.size))
        if size > _MESSAGE_BYTES:
            raise _not_audio()
        payload = self._take(size)
        if kind == child.FAILED:
            raise self._failure(payload)
        self._ready = True
        return _Message(kind, payload, rate_hz, channels, name.rstrip(b"\0").decode("ascii", "replace"))

    def expect(self, kind: bytes) -> _Message:
        message = self.message()
        if message.kind != kind:
            raise _not_audio()
        return message

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()

    def _take(self, size: int) -> bytes:
        while len(self._heard) < size:
            data = self._out.read(_READ_BYTES) if self._poll.poll(_STALL_MS) else b""
            if not data:  # stalled, or killed by a limit or a crash
                raise _not_audio() if self._ready else _cannot_start()
            self._heard += data
        taken = bytes(self._heard[:size])
        del self._heard[:size]
        return taken

    def _failure(self, reason: bytes) -> StagewaveError:
        if reason == child.TOO_LONG:
            return self._limits.too_long()
        if reason == child.NO_AUDIO_STREAM:
            return StagewaveError(ErrorCode.NO_AUDIO_STREAM, "the media file has no audio in it")
        if reason == child.EMPTY:
            return StagewaveError(ErrorCode.AUDIO_EMPTY, "the audio is empty: it has no samples")
        return _not_audio()


@contextmanager
def _regular(file: BinaryIO) -> Iterator[BinaryIO]:
    """The same bytes as a file that another process can read."""
    if isinstance(file, io.FileIO | io.BufferedReader | io.BufferedRandom):
        file.flush()
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        file.seek(0)
        shutil.copyfileobj(file, copy, _READ_BYTES)
        copy.flush()
        yield copy


def _to_float(message: _Message) -> Float32Wave:
    """float32 ``[frames, channels]``, full scale 1."""
    planar = message.sample_format.endswith("p")
    dtype = _DTYPES.get(message.sample_format.removesuffix("p"))
    if dtype is None or len(message.payload) % (np.dtype(dtype).itemsize * message.channels):
        raise _not_audio()
    values = np.frombuffer(message.payload, dtype)
    frames = values.reshape(message.channels, -1).T if planar else values.reshape(-1, message.channels)
    with np.errstate(over="ignore"):  # a value that float32 cannot hold becomes an infinity
        wave = frames.astype(np.float32)
    if dtype is np.uint8:
        wave -= 128
    if np.issubdtype(dtype, np.integer):
        wave /= 2.0 ** (8 * values.itemsize - 1)
    return wave


def _not_audio() -> StagewaveError:
    return StagewaveError(ErrorCode.NOT_AUDIO, "the input is not audio that can be decoded")


def _cannot_start() -> StagewaveError:
    return StagewaveError(ErrorCode.INTERNAL, "the audio decoder cannot be started")
