"""Audio out: int16 mono samples become wav, pcm, flac, mp3 or Ogg Opus, live or in a file.

Both ways take the samples as they come and keep none. Live bytes can be sent at once: a listener is at
most some 60 ms behind. A file is what its format wants of a finished file: sizes, length, delay.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Protocol, Self

from stage_pipeline.audio.compressed import CompressedWriter, typed_errors
from stage_pipeline.audio.formats import PCM, WAV
from stage_pipeline.audio.wav_header import WAV_HEADER_BYTES, check_data_bytes, wav_header


class Encoder(Protocol):
    """One listener's encoder; close it also when the listener is gone. The first call gives the header,
    even when it brings no samples."""

    def write(self, pcm16: bytes) -> bytes:
        """int16 little-endian samples in, bytes to send on out; they may be none."""
        ...

    def close(self) -> bytes:
        """The last bytes."""
        ...


def open_encoder(format: str, rate_hz: int) -> Encoder:
    """For bytes that are sent while the audio is made; ``format`` is a name of ``AUDIO_FORMATS``. A live
    wav or pcm has each sample at the same byte as the finished file."""
    if format == WAV.name:
        return _PlainEncoder(wav_header(rate_hz))
    if format == PCM.name:
        return _PlainEncoder(b"")
    return _CompressedEncoder(format, rate_hz)


class _PlainEncoder:
    def __init__(self, header: bytes) -> None:
        self._header = header

    def write(self, pcm16: bytes) -> bytes:
        _check_whole(pcm16)
        header, self._header = self._header, b""
        return header + pcm16

    def close(self) -> bytes:
        return self.write(b"")


class _CompressedEncoder:
    def __init__(self, format: str, rate_hz: int) -> None:
        self._sink = _Sink()
        self._writer = CompressedWriter(self._sink, format, rate_hz, live=True)

    def write(self, pcm16: bytes) -> bytes:
        _check_whole(pcm16)
        self._writer.write(pcm16)
        return self._sink.take()

    def close(self) -> bytes:
        self._writer.close()
        return self._sink.take()


class _Sink:
    """Bytes on their way to a listener: what was taken cannot be written over."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes, /) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._data)
        self._data.clear()
        return taken


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A finished file; ``samples`` counts what was written into it, at the rate it was written at."""

    size_bytes: int
    samples: int


class FileEncoder:
    """Writes one finished file, from its start. Use it as a context: after an error, what lies there is of
    no use. The same samples give the same bytes, whatever the blocks they come in."""

    def __init__(self, file: IO[bytes], format: str, rate_hz: int) -> None:
        """``file`` can be sought in, and stays open."""
        self._format = format
        self._rate_hz = rate_hz
        self._samples = 0
        self._file = file
        self._writer = self._open_writer()

    def write(self, pcm16: bytes) -> None:
        """Raises ``audio_too_long`` for a wav of more than 4 GiB."""
        _check_whole(pcm16)
        self._samples += len(pcm16) // 2
        if self._format == WAV.name:
            check_data_bytes(2 * self._samples)
        if self._writer is not None:
            self._writer.write(pcm16)
        else:
            with typed_errors():
                self._file.write(pcm16)

    def close(self) -> EncodedFile:
        """Complete the file."""
        if self._writer is not None:
            self._writer.close()
        with typed_errors():
            if self._format == WAV.name:
                self._file.seek(0)
                self._file.write(wav_header(self._rate_hz, 2 * self._samples))
            size_bytes = self._file.seek(0, os.SEEK_END)
        return EncodedFile(size_bytes, self._samples)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def _open_writer(self) -> CompressedWriter | None:
        if self._format == WAV.name:
            with typed_errors():
                self._file.write(bytes(WAV_HEADER_BYTES))
            return None
        if self._format == PCM.name:
            return None
        return CompressedWriter(self._file, self._format, self._rate_hz, live=False)


def _check_whole(pcm16: bytes) -> None:
    if len(pcm16) % 2:
        raise ValueError("the samples are cut inside one")
