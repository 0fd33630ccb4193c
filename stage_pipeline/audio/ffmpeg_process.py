"""The process in which FFmpeg reads a stranger's file; ``ffmpeg_source`` starts one for each file.

A few hundred bytes can make FFmpeg take gigabytes or minutes, and a demuxer may ask for other files, so
it runs where it can do no harm: with no file or socket to open, little memory, and limited CPU time.

It is run as a script, with nothing of ours imported. stdin is the file (read by position, so that the
offset shared with the parent stays where it is), the arguments are the longest duration in seconds
and the most CPU seconds, stdout is a row of messages: a ``HEAD``, then its payload.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import av
import av.audio.codeccontext
import av.audio.stream
import av.container
import av.subtitles.codeccontext
import av.subtitles.stream
import av.video.codeccontext
import av.video.stream

HEAD = struct.Struct("<cIIH4s")
"""Kind, payload bytes; also rate and channels (``SOURCE``, ``AUDIO``) and FFmpeg's name of the sample
format (``AUDIO``)."""
READY = b"R"
SOURCE = b"S"  # the container's name
AUDIO = b"A"  # the samples of one frame as FFmpeg has them, planes one after the other
END = b"E"
FAILED = b"F"  # one of the reasons below
TOO_LONG = b"too_long"
NOT_AUDIO = b"not_audio"
NO_AUDIO_STREAM = b"no_audio_stream"
EMPTY = b"empty"

_MEMORY_BYTES = 512 * 1024 * 1024
"""Address space, of which Python and FFmpeg themselves map 120 MiB."""
_BUFFER_BYTES = 256 * 1024

_DEMUXERS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dts,eac3,flac,flv,loas,matroska,mov,mp3,mpeg,mpegts,"
    "ogg,tta,voc,w64,wav,wv"
)
"""Formats that hold audio in the file itself: no playlists, no images, nothing that opens by name."""


class Input(Protocol):
    """What FFmpeg reads from."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, whence: int = ..., /) -> int: ...

    def tell(self) -> int: ...


class _Stdin:
    """The file on stdin, by position."""

    def __init__(self) -> None:
        self._size = os.fstat(0).st_size
        self._position = 0

    def read(self, size: int) -> bytes:
        data = os.pread(0, size, self._position)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the file's start")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position


class _Failure(Exception):
    """Why there is no audio; its argument is a reason."""


def main() -> None:
    longest_s, cpu_s = float(sys.argv[1]), int(sys.argv[2])
    with open(1, "wb", buffering=_BUFFER_BYTES) as out:
        _confine(cpu_s)
        _send(out, READY)
        out.flush()
        answer(_Stdin, out, longest_s)


def answer(open_input: Callable[[], Input], out: BinaryIO, longest_s: float) -> None:
    """Write the messages for one file, of which the last is ``END`` or ``FAILED``, whatever it holds."""
    try:
        _decode(open_input, out, longest_s)
        _send(out, END)
    except _Failure as failure:
        _send(out, FAILED, failure.args[0])
    except av.EOFError:
        _send(out, FAILED, EMPTY)  # the head of a known format, and nothing behind it
    except (av.FFmpegError, ValueError, MemoryError):
        # PyAV passes some faults of a file on as plain ValueErrors.
        _send(out, FAILED, NOT_AUDIO)


def _confine(cpu_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    if sys.platform == "linux":  # elsewhere a limit under what is already mapped is refused
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # Whatever is opened from here on fails; so the imports above hold all that PyAV would import later.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _decode(open_input: Callable[[], Input], out: BinaryIO, longest_s: float) -> None:
    container = _open(open_input())
    stream = _audio_stream(container)
    declared_s = _declared_s(container, stream)
    # A duration may be missing, or guessed from a bit rate: then the packets are added up, undecoded.
    if declared_s is None or declared_s > longest_s:
        _check_length(container, stream, longest_s)
        container = _open(open_input())
        stream = _audio_stream(container)
    codec = stream.codec_context
    name = container.format.name.partition(",")[0]
    _send(out, SOURCE, name.encode(), codec.sample_rate, codec.layout.nb_channels)
    frames = errors = 0
    for packet in _packets(container, stream):
        try:
            decoded = codec.decode(packet)
        except av.FFmpegError:
            errors += 1  # a damaged packet: the next one may be whole
            continue
        for frame in decoded:
            if frame.samples:
                frames += 1
                _send_frame(out, frame)
    if errors and not frames:
        raise _Failure(NOT_AUDIO)


def _open(file: Input) -> av.container.InputContainer:
    return av.open(
        file,
        mode="r",
        metadata_errors="ignore",
        buffer_size=_BUFFER_BYTES,
        container_options={
            "format_whitelist": _DEMUXERS,
            # Looking for the streams' parameters would otherwise decode pictures too.
            "codec_whitelist": ",".join(_audio_decoders()),
            "protocol_whitelist": "none",
        },
    )


def _audio_decoders() -> Iterator[str]:
    for name in av.codecs_available:
        try:
            if av.Codec(name, "r").type == "audio":
                yield name
        except av.codec.codec.UnknownCodecError:  # it only encodes
            pass


def _audio_stream(container: av.container.InputContainer) -> av.AudioStream:
    stream = container.streams.best("audio")
    if stream is None:
        raise _Failure(NOT_AUDIO if container.streams.audio else NO_AUDIO_STREAM)
    if not isinstance(stream, av.AudioStream) or stream.codec_context is None:
        raise _Failure(NOT_AUDIO)
    stream.codec_context.thread_count = 1
    return stream


def _declared_s(container: av.container.InputContainer, stream: av.AudioStream) -> float | None:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return container.duration / av.time_base if container.duration is not None else None


def _check_length(container: av.container.InputContainer, stream: av.AudioStream, longest_s: float) -> None:
    length = 0
    for packet in _packets(container, stream):
        length += packet.duration or 0
        if stream.time_base is not None and length * stream.time_base > longest_s:
            raise _Failure(TOO_LONG)


def _packets(
    container: av.container.InputContainer, stream: av.AudioStream
) -> Iterator[av.Packet[av.AudioStream]]:
    try:
        yield from container.demux(stream)
    except (av.FFmpegError, ValueError):
        return  # the file is cut short or damaged: what came before it stands


def _send_frame(out: BinaryIO, frame: av.AudioFrame) -> None:
    channels = frame.layout.nb_channels
    # A plane is padded for alignment behind its samples.
    plane_bytes = frame.samples * frame.format.bytes * (1 if frame.format.is_planar else channels)
    # From 8 planar channels on PyAV takes what lies behind the list of planes for planes too.
    planes = frame.planes[: channels if frame.format.is_planar else 1]
    payload = b"".join(memoryview(plane)[:plane_bytes] for plane in planes)
    _send(out, AUDIO, payload, frame.sample_rate, channels, frame.format.name.encode())


def _send(
    out: BinaryIO, kind: bytes, payload: bytes = b"", rate_hz: int = 0, channels: int = 0, name: bytes = b""
) -> None:
    out.write(HEAD.pack(kind, len(payload), rate_hz, channels, name))
    out.write(payload)


if __name__ == "__main__":
    main()
