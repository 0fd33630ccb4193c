"""Audio out: what a live listener gets byte by byte, and what the finished file is."""

from __future__ import annotations

import gc
import io
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from stage_pipeline.audio import wav_header as wav_header_module
from stage_pipeline.audio.decode import decode_audio
from stage_pipeline.audio.encode import EncodedFile, FileEncoder, open_encoder
from stage_pipeline.audio.formats import AUDIO_FORMATS
from stage_pipeline.audio.wav_header import MAX_DATA_BYTES, WAV_HEADER_BYTES, wav_header
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave

from .recordings import pcm16, similarity, speech

FORMATS = tuple(AUDIO_FORMATS)
COMPRESSED = ("flac", "mp3", "opus")
RATES = (16_000, 22_050, 24_000)
PCM = pcm16(speech())
SAMPLES = len(PCM) // 2


def pieces(block: int) -> list[bytes]:
    return [PCM[start : start + 2 * block] for start in range(0, len(PCM), 2 * block)]


def live(format: str, rate_hz: int, block: int = 480) -> bytes:
    encoder = open_encoder(format, rate_hz)
    return b"".join([encoder.write(piece) for piece in pieces(block)] + [encoder.close()])


def finished(path: Path, format: str, rate_hz: int, block: int = 480) -> tuple[bytes, EncodedFile]:
    with path.open("wb") as file, FileEncoder(file, format, rate_hz) as encoder:
        for piece in pieces(block):
            encoder.write(piece)
        encoded = encoder.close()
    return path.read_bytes(), encoded


def heard(data: bytes, format: str, rate_hz: int) -> Float32Wave:
    if format == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768
    return decode_audio(io.BytesIO(data), rate_hz=rate_hz).wave


# The finished file


@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("format", FORMATS)
def test_a_finished_file_holds_every_sample(tmp_path: Path, format: str, rate_hz: int) -> None:
    data, encoded = finished(tmp_path / "speech", format, rate_hz)
    assert encoded == EncodedFile(size_bytes=len(data), samples=SAMPLES)
    wave = heard(data, format, rate_hz)
    # Opus has no 22.05 kHz: there and back again may round to one more.
    assert abs(len(wave) - SAMPLES) <= (1 if (format, rate_hz) == ("opus", 22_050) else 0)
    assert similarity(wave, speech()) > 0.98
    if format in ("wav", "pcm", "flac"):
        assert np.rint(wave * 32768).astype("<i2").tobytes() == PCM


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_samples_make_the_same_file_whatever_the_blocks(tmp_path: Path, format: str) -> None:
    whole, _ = finished(tmp_path / "whole", format, 22_050, SAMPLES)
    for block in (100, 4097):
        assert finished(tmp_path / "pieces", format, 22_050, block)[0] == whole


def test_a_finished_wav_tells_its_sizes(tmp_path: Path) -> None:
    data, _ = finished(tmp_path / "speech.wav", "wav", 24_000)
    assert data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and data[36:40] == b"data"
    assert struct.unpack_from("<I", data, 4) == (len(data) - 8,)
    assert struct.unpack_from("<IHHIIHH", data, 16) == (16, 1, 1, 24_000, 48_000, 2, 16)
    assert struct.unpack_from("<I", data, 40) == (len(PCM),)
    assert data[44:] == PCM


def test_a_finished_flac_tells_its_length(tmp_path: Path) -> None:
    data, _ = finished(tmp_path / "speech.flac", "flac", 24_000)
    assert soundfile.info(io.BytesIO(data)).frames == SAMPLES


def test_a_finished_mp3_tells_its_length_in_its_first_frame(tmp_path: Path) -> None:
    data, _ = finished(tmp_path / "speech.mp3", "mp3", 24_000)
    head = data.index(b"Info")
    flags, frames = struct.unpack_from(">II", data, head + 4)
    assert flags & 1
    assert SAMPLES <= frames * 576 < SAMPLES + 5 * 576


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_of_no_samples_is_still_a_file(tmp_path: Path, format: str) -> None:
    with (tmp_path / "empty").open("wb") as file, FileEncoder(file, format, 24_000) as encoder:
        encoded = encoder.close()
    assert encoded == EncodedFile((tmp_path / "empty").stat().st_size, 0)
    assert (tmp_path / "empty").read_bytes()[:4] == {
        "wav": b"RIFF",
        "pcm": b"",
        "flac": b"fLaC",
        "mp3": b"ID3\4",
        "opus": b"OggS",
    }[format]


def test_more_than_a_wav_can_hold_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(wav_header(24_000, MAX_DATA_BYTES)) == WAV_HEADER_BYTES
    with pytest.raises(StagewaveError) as caught:
        wav_header(24_000, MAX_DATA_BYTES + 1)
    assert caught.value.code is ErrorCode.AUDIO_TOO_LONG
    monkeypatch.setattr(wav_header_module, "MAX_DATA_BYTES", 1000)
    with (tmp_path / "long.wav").open("wb") as file, FileEncoder(file, "wav", 24_000) as encoder:
        encoder.write(bytes(1000))
        with pytest.raises(StagewaveError) as caught:
            encoder.write(bytes(2))
    assert caught.value.code is ErrorCode.AUDIO_TOO_LONG
    assert (tmp_path / "long.wav").stat().st_size == 1044


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_makes_a_typed_error(format: str) -> None:
    file = Path("/dev/full").open("wb", buffering=0)
    with file, pytest.raises(StagewaveError) as caught, FileEncoder(file, format, 24_000) as encoder:
        for piece in pieces(SAMPLES):
            encoder.write(piece)
        encoder.close()
    assert caught.value.code is ErrorCode.DISK_FULL
    assert caught.value.message == "there is no room for the audio"


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_outside_leaves_nothing_to_be_written_later(tmp_path: Path, format: str) -> None:
    with (tmp_path / "speech").open("wb") as file:
        with pytest.raises(KeyboardInterrupt), FileEncoder(file, format, 24_000) as encoder:
            encoder.write(PCM[:2000])
            raise KeyboardInterrupt
        size = file.tell()
        del encoder
        gc.collect()
        assert file.tell() == size


# The live stream


@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("format", FORMATS)
def test_a_live_stream_holds_every_sample(format: str, rate_hz: int) -> None:
    wave = heard(live(format, rate_hz), format, rate_hz)
    # A live mp3 cannot say how much of its first and last frames is delay and padding.
    assert 0 <= len(wave) - SAMPLES <= (3 * 1152 if format == "mp3" else 1)
    assert similarity(wave, speech()) > 0.98


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_samples_make_the_same_stream_whatever_the_blocks(format: str) -> None:
    assert live(format, 24_000, 100) == live(format, 24_000, 4097)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rate_hz", [22_050, 24_000])
def test_a_listener_is_never_more_than_a_tenth_of_a_second_behind(format: str, rate_hz: int) -> None:
    encoder = open_encoder(format, rate_hz)
    sent, written, behind = b"", 0, []
    for piece in pieces(rate_hz // 50)[:15]:
        sent += encoder.write(piece)
        written += len(piece) // 2
        if written >= rate_hz // 10 and len(behind) < 5:
            behind.append(written - len(heard(sent, format, rate_hz)))
    assert max(behind) <= rate_hz // 10


def test_a_live_wav_and_the_finished_one_have_each_sample_at_the_same_byte(tmp_path: Path) -> None:
    data, _ = finished(tmp_path / "speech.wav", "wav", 24_000)
    stream = live("wav", 24_000)
    assert len(stream) == len(data)
    assert stream[WAV_HEADER_BYTES:] == data[WAV_HEADER_BYTES:] == PCM
    assert live("pcm", 24_000) == PCM


def test_a_live_wav_says_that_its_end_is_not_known() -> None:
    header = open_encoder("wav", 24_000).write(b"")
    assert len(header) == WAV_HEADER_BYTES
    assert struct.unpack_from("<I", header, 4) == struct.unpack_from("<I", header, 40) == (0xFFFFFFFF,)


@pytest.mark.parametrize(("format", "begin"), [("wav", b"RIFF"), ("flac", b"fLaC"), ("opus", b"OggS")])
def test_the_header_is_sent_before_the_first_sample_and_once(format: str, begin: bytes) -> None:
    encoder = open_encoder(format, 24_000)
    assert encoder.write(b"").startswith(begin)
    assert encoder.write(b"") == b""


@pytest.mark.parametrize("format", FORMATS)
def test_half_a_sample_is_refused(tmp_path: Path, format: str) -> None:
    with pytest.raises(ValueError, match="samples"):
        open_encoder(format, 24_000).write(b"\0\0\0")
    with (tmp_path / "speech").open("wb") as file, FileEncoder(file, format, 24_000) as encoder:
        with pytest.raises(ValueError, match="samples"):
            encoder.write(b"\0\0\0")


def test_importing_it_brings_no_model_and_no_decoder_with_it() -> None:
    heavy = "{'torch', 'onnxruntime', 'ctranslate2', 'faster_whisper', 'soundfile'}"
    script = f"import sys, stage_pipeline.audio.encode; sys.exit(len({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
