"""Makers of real audio bytes, in every format, right and wrong; all from one clip of English speech."""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Sequence
from fractions import Fraction
from importlib import resources

import av
import numpy as np
import soundfile

from stage_pipeline.stages import Float32Wave

RATE_HZ = 16_000
CLIP_S = 3.0
READING_HZ = 48_000

# Where in the reading a clause begins and ends, in seconds.
CLAUSES_S = ((1.20, 4.55), (8.82, 10.30), (10.76, 12.80), (17.57, 20.47), (29.12, 32.24))

WAV_ENCODINGS = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")

# Name: container, codec, rate, layout, bit rate; mp4, mov, avi and mpg also get a picture.
MEDIA = {
    "aac": ("adts", "aac", 16_000, "mono", None),
    "ac3": ("ac3", "ac3", 48_000, "mono", None),
    "aiff": ("aiff", "pcm_s16be", 22_050, "stereo", None),
    "amr": ("amr", "libopencore_amrnb", 8000, "mono", 12_200),
    "au": ("au", "pcm_s16be", 16_000, "mono", None),
    "avi": ("avi", "libmp3lame", 44_100, "mono", None),
    "caf": ("caf", "pcm_s16le", 16_000, "mono", None),
    "flac": ("flac", "flac", 48_000, "stereo", None),
    "flv": ("flv", "aac", 44_100, "mono", None),
    "m4a": ("ipod", "aac", 44_100, "stereo", None),
    "alac": ("ipod", "alac", 16_000, "mono", None),
    "mkv": ("matroska", "flac", 16_000, "mono", None),
    "mov": ("mov", "aac", 48_000, "stereo", None),
    "mp3": ("mp3", "libmp3lame", 44_100, "stereo", None),
    "mp4": ("mp4", "aac", 48_000, "5.1", None),
    "mpg": ("mpeg", "mp2", 48_000, "mono", None),
    "ogg": ("ogg", "libvorbis", 44_100, "stereo", None),
    "opus": ("ogg", "libopus", 48_000, "mono", None),
    "ts": ("mpegts", "aac", 48_000, "mono", None),
    "tta": ("tta", "tta", 16_000, "mono", None),
    "w64": ("w64", "pcm_s24le", 16_000, "mono", None),
    "wav": ("wav", "pcm_s16le", 44_100, "stereo", None),
    "webm": ("webm", "libopus", 48_000, "mono", None),
    "wma": ("asf", "wmav2", 44_100, "mono", 64_000),
    "wv": ("wv", "wavpack", 16_000, "mono", None),
    "3gp": ("3gp", "libopencore_amrnb", 8000, "mono", 12_200),
}
_WITH_PICTURE = ("mp4", "mov", "avi", "mpeg")


@functools.cache
def speech() -> Float32Wave:
    """Three seconds of it, float32 mono at 16 kHz."""
    clip = resources.files("moonshine_voice") / "assets" / "beckett.wav"
    wave, rate_hz = soundfile.read(io.BytesIO(clip.read_bytes()), dtype="float32")
    assert rate_hz == RATE_HZ
    return np.ascontiguousarray(wave[: int(CLIP_S * RATE_HZ)])


@functools.cache
def reading() -> Float32Wave:
    """44 seconds of a person who reads, float32 mono at ``READING_HZ``."""
    clip = resources.files("moonshine_voice") / "assets" / "two_cities.wav"
    wave, rate_hz = soundfile.read(io.BytesIO(clip.read_bytes()), dtype="float32")
    assert rate_hz == READING_HZ
    return np.asarray(wave, np.float32)


def parted(wave: Float32Wave, rate_hz: int, pauses_s: Sequence[float]) -> tuple[Float32Wave, list[float]]:
    """Clauses of the reading, ``wave``, with a second of silence before them and so much after each; and
    when each begins, in seconds."""
    parts, begins_s = [np.zeros(rate_hz, np.float32)], []
    for (start_s, stop_s), pause_s in zip(CLAUSES_S, pauses_s, strict=True):
        begins_s.append(sum(map(len, parts)) / rate_hz)
        parts.append(wave[round(start_s * rate_hz) : round(stop_s * rate_hz)])
        parts.append(np.zeros(round(pause_s * rate_hz), np.float32))
    return np.concatenate(parts), begins_s


def sndfile(
    wave: Float32Wave, rate_hz: int = RATE_HZ, format: str = "WAV", subtype: str | None = None
) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, wave, rate_hz, format=format, subtype=subtype)
    return buffer.getvalue()


@functools.cache
def media(name: str) -> bytes:
    """The clip as one of ``MEDIA``."""
    container, codec, rate_hz, layout, bit_rate = MEDIA[name]
    if name == "ogg":  # PyAV has no Vorbis encoder
        return sndfile(speech(), format="OGG", subtype="VORBIS")
    return encode(speech(), container, codec, rate_hz, layout, bit_rate, picture=container in _WITH_PICTURE)


def encode(
    wave: Float32Wave,
    container: str,
    codec: str | None,
    rate_hz: int = RATE_HZ,
    layout: str = "mono",
    bit_rate: int | None = None,
    picture: bool = False,
    sink: Unseekable | None = None,
) -> bytes:
    """A file made by PyAV; without a codec only its picture."""
    buffer = io.BytesIO()
    with av.open(sink or buffer, "w", format=container) as out:
        video = (
            out.add_stream("mpeg4", rate=25, width=64, height=64, pix_fmt="yuv420p") if picture else None
        )
        audio = out.add_stream(codec, rate=rate_hz, layout=layout) if codec else None
        if audio and bit_rate:
            audio.bit_rate = bit_rate
        if video:
            for level in range(int(25 * len(wave) / RATE_HZ)):
                image = np.full((64, 64, 3), level, np.uint8)
                out.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            out.mux(video.encode(None))
        if audio:
            frame = av.AudioFrame.from_ndarray(wave[None], format="flt", layout="mono")
            frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, Fraction(1, RATE_HZ), 0
            resampler = av.AudioResampler(audio.codec_context.format, layout, rate_hz)
            for resampled in [*resampler.resample(frame), *resampler.resample(None)]:
                out.mux(audio.encode(resampled))
            out.mux(audio.encode(None))
    return buffer.getvalue()


def pcm16(wave: Float32Wave) -> bytes:
    return (np.clip(wave, -1, 1) * 32767).astype("<i2").tobytes()


def wav(
    data: bytes,
    *,
    tag: int = 1,
    channels: int = 1,
    rate_hz: int = RATE_HZ,
    bits: int = 16,
    before: bytes = b"",
    data_size: int | None = None,
    riff_size: int | None = None,
) -> bytes:
    """A wav written byte by byte, so that each field can lie. ``before`` is put ahead of ``data``."""
    align = channels * bits // 8 & 0xFFFF
    form = struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * align & 0xFFFFFFFF, align, bits)
    size = len(data) if data_size is None else data_size
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + before + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body) if riff_size is None else riff_size) + body


def long_opus(seconds: float) -> bytes:
    """A tone at some 6 kbit/s as Ogg Opus, of any length in no time: a second of it over and over."""
    packet_samples = 5760  # 120 ms at 48 kHz
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="ogg") as out:
        stream = out.add_stream(
            "libopus", rate=48_000, layout="mono", format="flt", options={"frame_duration": "120"}
        )
        stream.bit_rate = 6000
        tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(2 * 48_000) / 48_000, dtype=np.float32)
        frame = av.AudioFrame.from_ndarray(tone[None], format="flt", layout="mono")
        frame.sample_rate = 48_000
        steady = [bytes(packet) for packet in stream.encode(frame)][4:12]
        for index in range(int(seconds * 48_000 / packet_samples)):
            packet = av.Packet(steady[index % len(steady)])
            packet.stream, packet.time_base = stream, Fraction(1, 48_000)
            packet.pts = packet.dts = index * packet_samples
            packet.duration = packet_samples
            out.mux(packet)
    return buffer.getvalue()


class Unseekable:
    """Where a live stream goes: nothing written can be completed later."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


def similarity(wave: Float32Wave, reference: Float32Wave) -> float:
    """Correlation at the best of all shifts up to 100 ms, for codecs have delays."""
    size = min(len(wave), len(reference))
    spectrum = np.fft.rfft(wave[:size], 2 * size) * np.conj(np.fft.rfft(reference[:size], 2 * size))
    products = np.fft.irfft(spectrum)
    near = np.concatenate([products[:1600], products[-1600:]])
    return float(near.max() / (np.linalg.norm(wave[:size]) * np.linalg.norm(reference[:size])))
