"""flac, mp3 and Ogg Opus, written through PyAV while the samples come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

import av
import av.container
import numpy as np

from stage_pipeline.errors import ErrorCode, StagewaveError, is_disk_full


@dataclass(frozen=True, slots=True)
class _Codec:
    container: str
    encoder: Literal["flac", "libmp3lame", "libopus"]
    sample_format: str
    rates_hz: tuple[int, ...]
    """What the encoder takes; other samples are brought to the next higher of them."""
    bit_rate: int | None = None
    encoder_options: Mapping[str, str] = field(default_factory=dict)
    container_options: Mapping[str, str] = field(default_factory=dict)
    live_container_options: Mapping[str, str] = field(default_factory=dict)
    live_encoder_options: Mapping[str, str] = field(default_factory=dict)


_CODECS = {
    "flac": _Codec(
        "flac",
        "flac",
        "s16",
        (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000),
        # Without it 8 KiB of nothing are kept free for tags before the first sample.
        container_options={"metadata_header_padding": "0"},
        live_encoder_options={"frame_size": "512"},  # 20 ms instead of 100, for 3 % more bytes
    ),
    "mp3": _Codec(
        "mp3",
        "libmp3lame",
        "s16p",
        (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
        bit_rate=96_000,
        # Twice as fast as the default, and as close to what went in.
        encoder_options={"compression_level": "7"},
        # In a file the first frame tells the length and the encoder's delay; live nobody knows the length.
        live_container_options={"write_xing": "0", "id3v2_version": "0"},
        live_encoder_options={"reservoir": "0"},  # a frame never waits for bits of the next
    ),
    "opus": _Codec(
        "ogg",
        "libopus",
        "s16",
        (8000, 12_000, 16_000, 24_000, 48_000),
        bit_rate=48_000,
        # Three times as fast as the default, and as close.
        encoder_options={"compression_level": "5"},
        # A page for each packet of 20 ms; in a file a page holds a second.
        live_container_options={"page_duration": "20000"},
    ),
}


class Sink(Protocol):
    """Where bytes go. With ``seek`` and ``tell`` the header is completed at the end."""

    def write(self, data: bytes, /) -> int: ...


class CompressedWriter:
    """Writes int16 mono samples to a sink; the same samples give the same bytes, whatever the blocks.

    It has to be closed or abandoned: PyAV would otherwise write the last bytes whenever the garbage
    collector finds it, perhaps into a sink that is gone.
    """

    def __init__(self, sink: Sink, format: str, rate_hz: int, *, live: bool) -> None:
        codec = _CODECS[format]
        options = {
            **codec.container_options,
            "fflags": "+bitexact",  # Ogg's serial number is random otherwise
            **({"flush_packets": "1", **codec.live_container_options} if live else {}),
        }
        out_hz = next((rate for rate in codec.rates_hz if rate >= rate_hz), codec.rates_hz[-1])
        self._container = av.open(sink, "w", format=codec.container, container_options=options)
        with self._typed_errors():
            self._stream = self._container.add_stream(
                codec.encoder,
                rate=out_hz,
                options={**codec.encoder_options, **(codec.live_encoder_options if live else {})},
                layout="mono",
                format=codec.sample_format,
            )
            if codec.bit_rate is not None:
                self._stream.bit_rate = codec.bit_rate
            self._container.start_encoding()
        self._rate_hz = rate_hz
        self._sample_format = codec.sample_format
        self._samples = 0

    def write(self, pcm16: bytes) -> None:
        if not pcm16:
            return
        samples = np.frombuffer(pcm16, "<i2")
        frame = av.AudioFrame.from_ndarray(samples[None], format=self._sample_format, layout="mono")
        frame.sample_rate = self._rate_hz
        frame.time_base = Fraction(1, self._rate_hz)
        frame.pts = self._samples
        self._samples += len(samples)
        with self._typed_errors():
            self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        with self._typed_errors():
            self._container.mux(self._stream.encode(None))
            self._container.close()

    def abandon(self) -> None:
        """End it without the samples that the encoder still holds; at any moment, more than once."""
        with suppress(av.FFmpegError, OSError):
            self._container.close()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            with typed_errors():
                yield
        except StagewaveError:
            self.abandon()
            raise


@contextmanager
def typed_errors() -> Iterator[None]:
    """Maps what PyAV and the file system raise."""
    try:
        yield
    except (av.FFmpegError, OSError) as error:
        if is_disk_full(error):
            raise StagewaveError(ErrorCode.DISK_FULL, "there is no room for the audio") from None
        raise StagewaveError(ErrorCode.INTERNAL, "the audio could not be encoded") from None
