"""Audio in, through the whole of ``decode``: every format, and everything that is wrong with files."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stage_pipeline.audio.decode import DEFAULT_LIMITS, decode_audio, decode_blocks
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.errors import ErrorCode, StagewaveError

from .recordings import (
    CLIP_S,
    MEDIA,
    RATE_HZ,
    WAV_ENCODINGS,
    Unseekable,
    encode,
    long_opus,
    media,
    pcm16,
    similarity,
    sndfile,
    speech,
    wav,
)


def failure(data: bytes, limits: DecodeLimits = DEFAULT_LIMITS) -> StagewaveError:
    with pytest.raises(StagewaveError) as caught:
        decode_audio(io.BytesIO(data), limits=limits)
    return caught.value


def code(data: bytes, limits: DecodeLimits = DEFAULT_LIMITS) -> ErrorCode:
    return failure(data, limits).code


# What has to be heard


@pytest.mark.parametrize("subtype", WAV_ENCODINGS)
def test_every_wav_encoding_gives_the_same_sound(subtype: str) -> None:
    decoded = decode_audio(io.BytesIO(sndfile(speech(), subtype=subtype)))
    assert len(decoded.wave) == len(speech())
    assert (decoded.source_format, decoded.source_rate_hz, decoded.source_channels) == ("wav", RATE_HZ, 1)
    assert np.abs(decoded.wave - speech()).max() < 0.02


def test_an_extensible_wav_of_six_channels_becomes_the_mean_of_them() -> None:
    channels = speech()[:, None] * np.float32([0.5, 1, 0.25, 0, 0, 0.25])
    decoded = decode_audio(io.BytesIO(sndfile(channels, format="WAVEX", subtype="PCM_24")))
    assert decoded.source_channels == 6
    assert np.abs(decoded.wave - speech() / 3).max() < 1e-4


@pytest.mark.parametrize("rate_hz", [8000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_every_sample_rate_gives_the_same_sound_and_the_same_length(rate_hz: int) -> None:
    time_s = np.arange(2 * rate_hz) / rate_hz
    decoded = decode_audio(io.BytesIO(sndfile(np.float32(0.5 * np.sin(6.28 * 440 * time_s)), rate_hz)))
    expected = 0.5 * np.sin(6.28 * 440 * np.arange(2 * RATE_HZ) / RATE_HZ)
    assert decoded.source_rate_hz == rate_hz
    assert len(decoded.wave) == 2 * RATE_HZ
    assert np.abs(decoded.wave - expected)[500:-500].max() < 1e-3


@pytest.mark.parametrize("name", MEDIA)
def test_every_container_and_codec_gives_the_same_sound(name: str) -> None:
    _, codec, rate_hz, layout, _ = MEDIA[name]
    decoded = decode_audio(io.BytesIO(media(name)))
    # The tracks' own priming and padding stay where the container does not tell of them.
    assert CLIP_S - 0.03 <= decoded.duration_s <= CLIP_S + 0.15
    assert similarity(decoded.wave, speech()) > (
        0.7 if codec == "libopencore_amrnb" else 0.95
    )  # a telephone's
    if name != "ogg":
        assert decoded.source_rate_hz == rate_hz
        assert decoded.source_channels == {"mono": 1, "stereo": 2, "5.1": 6}[layout]


@pytest.mark.parametrize("name", ["flac", "mp3", "ogg", "opus", "webm", "wav", "alac"])
def test_formats_that_know_their_length_keep_it_to_the_sample(name: str) -> None:
    assert abs(len(decode_audio(io.BytesIO(media(name))).wave) - len(speech())) <= 1


def test_eight_planar_channels_are_all_heard() -> None:
    data = encode(speech(), "ipod", "aac", 48_000, "7.1")
    decoded = decode_audio(io.BytesIO(data))
    assert decoded.source_channels == 8
    assert similarity(decoded.wave, speech()) > 0.95


def test_sixty_four_channels_are_heard() -> None:
    channels = np.repeat(speech()[:, None], 64, axis=1)
    decoded = decode_audio(io.BytesIO(sndfile(channels)))
    assert decoded.source_channels == 64
    assert np.abs(decoded.wave - speech()).max() < 1e-4


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_file_of_a_few_samples_is_audio(samples: int) -> None:
    assert len(decode_audio(io.BytesIO(wav(pcm16(speech()[:samples])))).wave) == samples
    at_48_khz = decode_audio(io.BytesIO(wav(pcm16(speech()[:samples]), rate_hz=48_000)))
    assert len(at_48_khz.wave) == 1


def test_silence_is_audio() -> None:
    decoded = decode_audio(io.BytesIO(wav(bytes(2 * 10 * RATE_HZ))))
    assert decoded.duration_s == 10
    assert not decoded.wave.any()


def test_the_rate_asked_for_is_the_rate_given() -> None:
    decoded = decode_audio(io.BytesIO(sndfile(speech())), rate_hz=24_000)
    assert (decoded.rate_hz, len(decoded.wave), decoded.duration_s) == (24_000, 72_000, CLIP_S)


def test_blocks_are_the_whole_cut_in_pieces() -> None:
    data = media("m4a")
    blocks = list(decode_blocks(io.BytesIO(data)))
    assert len(blocks) > 1
    assert all(block.dtype == np.float32 and block.ndim == 1 and len(block) for block in blocks)
    assert np.array_equal(np.concatenate(blocks), decode_audio(io.BytesIO(data)).wave)


def test_a_file_is_read_from_its_start_and_left_open(tmp_path: Path) -> None:
    path = tmp_path / "clip"
    for data in (media("wav"), media("mp3")):
        path.write_bytes(data)
        with path.open("rb") as file:
            file.seek(1000)
            first = decode_audio(file)
            second = decode_audio(file)
            assert not file.closed
        assert np.array_equal(first.wave, second.wave)
        assert np.array_equal(first.wave, decode_audio(io.BytesIO(data)).wave)


def test_a_file_still_being_written_to_is_read_with_all_that_was_written(tmp_path: Path) -> None:
    with (tmp_path / "upload").open("w+b") as file:
        file.write(media("mp3"))
        assert len(decode_audio(file).wave) == len(decode_audio(io.BytesIO(media("mp3"))).wave)


# wav files as streams and recorders leave them


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFF000])
def test_a_streamed_wav_without_its_size_is_decoded_to_the_end(size: int) -> None:
    data = wav(pcm16(speech()), data_size=size, riff_size=size)
    assert np.abs(decode_audio(io.BytesIO(data)).wave - speech()).max() < 1e-3


def test_a_huge_chunk_of_zeros_before_the_samples_is_passed_over() -> None:
    chunk = b"LIST" + struct.pack("<I", 393_216) + bytes(393_216)
    assert len(decode_audio(io.BytesIO(wav(pcm16(speech()), before=chunk))).wave) == len(speech())


def test_an_odd_chunk_without_its_pad_byte_is_decoded_or_refused() -> None:
    odd = b"LIST" + struct.pack("<I", 7) + b"INFOabc"
    assert len(decode_audio(io.BytesIO(wav(pcm16(speech()), before=odd + b"\0"))).wave) == len(speech())
    try:
        assert decode_audio(io.BytesIO(wav(pcm16(speech()), before=odd))).duration_s == CLIP_S
    except StagewaveError as error:
        assert error.code is ErrorCode.NOT_AUDIO


def test_values_that_are_no_numbers_are_silence_and_loud_ones_are_clipped() -> None:
    values = np.array([0.5, np.nan, np.inf, -np.inf, 0.25, 3.0, -1e30], np.float32)
    decoded = decode_audio(io.BytesIO(wav(values.tobytes(), tag=3, bits=32)))
    assert decoded.wave.tolist() == [0.5, 0, 0, 0, 0.25, 1, -1]


def test_a_value_that_is_no_number_does_not_silence_the_other_channel() -> None:
    values = np.array([[np.nan, 0.5], [0.5, 0.5]], np.float32)
    decoded = decode_audio(io.BytesIO(wav(values.tobytes(), tag=3, bits=32, channels=2)))
    assert decoded.wave.tolist() == [0.25, 0.5]


# Damaged files


@pytest.mark.parametrize("name", ["wav", "flac", "ogg", "opus", "mp3", "aac", "webm", "ts", "amr", "mkv"])
def test_of_a_truncated_file_what_is_there_is_decoded(name: str) -> None:
    data = media(name)
    decoded = decode_audio(io.BytesIO(data[: len(data) * 2 // 3]))
    # A page of Ogg that is not whole is lost, and one holds a second or more.
    assert (0.7 if name in ("ogg", "opus") else CLIP_S * 2 / 3 - 0.3) < decoded.duration_s < CLIP_S
    assert similarity(decoded.wave, speech()) > (0.7 if name == "amr" else 0.95)


def test_an_m4a_cut_before_its_index_is_not_audio() -> None:
    data = media("m4a")
    assert code(data[: len(data) // 2]) is ErrorCode.NOT_AUDIO


@pytest.mark.parametrize("name", ["flac", "ogg", "mp3", "m4a", "webm", "amr"])
def test_garbage_behind_a_valid_head_is_audio_or_a_typed_error(name: str) -> None:
    data = media(name)[:2000] + np.random.default_rng(7).bytes(30_000)
    try:
        assert np.isfinite(decode_audio(io.BytesIO(data)).wave).all()
    except StagewaveError as error:
        assert error.code in (ErrorCode.NOT_AUDIO, ErrorCode.AUDIO_EMPTY)


def test_an_mp3_behind_a_large_picture_is_decoded() -> None:
    picture = np.random.default_rng(1).bytes(2_000_000)
    frame = b"\0image/jpeg\0\3\0" + picture
    size = bytes(len(frame) + 10 >> shift & 127 for shift in (21, 14, 7, 0))
    frame_size = bytes(len(frame) >> shift & 127 for shift in (21, 14, 7, 0))
    data = b"ID3\4\0\0" + size + b"APIC" + frame_size + b"\0\0" + frame + media("mp3")
    assert decode_audio(io.BytesIO(data)).duration_s == pytest.approx(CLIP_S, abs=0.02)


@pytest.mark.parametrize("name", ["mp3", "ogg", "opus", "aac"])
def test_files_joined_to_one_are_heard_to_the_end(name: str) -> None:
    assert decode_audio(io.BytesIO(2 * media(name))).duration_s == pytest.approx(2 * CLIP_S, abs=0.3)


# What is refused, and how


def test_no_bytes_and_no_samples_are_empty_audio() -> None:
    assert code(b"") is ErrorCode.AUDIO_EMPTY
    assert code(wav(b"")) is ErrorCode.AUDIO_EMPTY
    for format in ("FLAC", "OGG"):
        assert code(sndfile(np.zeros(0, np.float32), format=format)) is ErrorCode.AUDIO_EMPTY


@pytest.mark.parametrize("container", ["mp4", "mov", "avi", "matroska"])
def test_a_film_without_sound_has_no_audio_stream(container: str) -> None:
    error = failure(encode(speech(), container, None, picture=True))
    assert error.code is ErrorCode.NO_AUDIO_STREAM
    assert error.message == "the media file has no audio in it"


NOT_AUDIO = {
    "html": b"<!DOCTYPE html><html><body>Sign in to continue</body></html>",
    "json": b'{"error": "not found"}',
    "text": b"It was the best of times, it was the worst of times. " * 100,
    "zeros": bytes(100_000),
    "one byte": b"R",
    "a wav's first four": b"RIFF",
    "random": np.random.default_rng(3).bytes(100_000),
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde" + bytes(100),
    "zip": b"PK\3\4\x14\0\0\0\x08\0" + bytes(1000),
}


@pytest.mark.parametrize("name", NOT_AUDIO)
def test_what_is_not_audio_is_said_to_be_not_audio(name: str) -> None:
    error = failure(NOT_AUDIO[name])
    assert error.code is ErrorCode.NOT_AUDIO
    assert error.message == "the input is not audio that can be decoded"
    assert error.__cause__ is None or isinstance(error.__cause__, StagewaveError)


def test_a_playlist_never_opens_what_it_names(tmp_path: Path) -> None:
    target = tmp_path / "clip.mp3"
    target.write_bytes(media("mp3"))
    playlists = [
        f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{target.as_uri()}\n#EXT-X-ENDLIST\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{target}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{target}'\n",
        f"[playlist]\nFile1={target}\n",
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n{target}\n",
    ]
    for playlist in playlists:
        assert code(playlist.encode()) is ErrorCode.NOT_AUDIO


@pytest.mark.parametrize("rate_hz", [0, 1, 999, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_rate_that_no_recorder_has_is_refused(rate_hz: int) -> None:
    assert code(wav(pcm16(speech()), rate_hz=rate_hz)) is ErrorCode.NOT_AUDIO


@pytest.mark.parametrize("channels", [0, 300, 65_535])
def test_a_channel_count_that_no_recorder_has_is_refused(channels: int) -> None:
    assert code(wav(bytes(1_000_000), channels=channels)) is ErrorCode.NOT_AUDIO


def test_a_file_over_the_limit_is_too_large() -> None:
    error = failure(wav(pcm16(speech())), DecodeLimits(size_bytes=1000))
    assert error.code is ErrorCode.TOO_LARGE
    assert "1000 bytes" in error.message


@pytest.mark.parametrize("name", ["wav", "flac", "opus", "mp3", "m4a", "aac", "webm", "ts", "amr"])
def test_audio_over_the_limit_is_too_long_and_the_limit_is_named(name: str) -> None:
    error = failure(media(name), DecodeLimits(duration_s=2.5))
    assert error.code is ErrorCode.AUDIO_TOO_LONG
    assert "2.5 s" in error.message


def test_nine_hours_of_opus_are_refused_before_they_are_decoded() -> None:
    data = long_opus(9 * 3600)
    assert len(data) < 30_000_000
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    assert code(data) is ErrorCode.AUDIO_TOO_LONG
    assert time.monotonic() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 200 * 1024


def test_a_live_recording_that_does_not_tell_its_length_is_measured_before_it_is_decoded() -> None:
    sink = Unseekable()
    encode(np.tile(speech(), 10), "webm", "libopus", 48_000, sink=sink)
    blocks = decode_blocks(io.BytesIO(sink.data), limits=DecodeLimits(duration_s=20))
    with pytest.raises(StagewaveError) as caught:
        next(blocks)
    assert caught.value.code is ErrorCode.AUDIO_TOO_LONG


def test_a_length_that_the_head_belies_is_counted_while_decoding() -> None:
    data = bytearray(sndfile(np.tile(speech(), 10), format="FLAC"))
    data[21] &= 0xF0  # the sample count of STREAMINFO, 36 bits: unknown
    data[22:26] = bytes(4)
    assert decode_audio(io.BytesIO(data)).duration_s == 30
    assert code(bytes(data), DecodeLimits(duration_s=20)) is ErrorCode.AUDIO_TOO_LONG


# What it costs


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hour.wav"
    data_bytes = 3600 * RATE_HZ * 2
    with path.open("wb") as file:
        file.write(wav(b"", data_size=data_bytes))
        file.truncate(44 + data_bytes)  # sparse: silence that takes no room
    with path.open("rb") as file:
        blocks = decode_blocks(file)
        samples = len(next(blocks))
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        samples += sum(len(block) for block in blocks)
    assert samples == 3600 * RATE_HZ
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 20 * 1024


def test_importing_it_brings_no_model_with_it() -> None:
    heavy = "{'torch', 'onnxruntime', 'ctranslate2', 'faster_whisper'}"
    script = f"import sys, stage_pipeline.audio.decode; sys.exit(len({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
