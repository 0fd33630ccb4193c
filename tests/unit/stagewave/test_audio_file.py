"""Audio is saved as it comes, and a live WAV ends up with its true length."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewave.audio_file import save_audio


def live_wav(samples: int) -> bytes:
    """A WAV as a server sends it that does not know the length yet."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(22_050)
        out.writeframes(b"\1\0" * samples)
    data = bytearray(file.getvalue())
    struct.pack_into("<I", data, 4, 0xFFFFFFFF)
    struct.pack_into("<I", data, 40, 0xFFFFFFFF)
    return bytes(data)


def test_a_live_wav_gets_its_true_length(tmp_path: Path) -> None:
    data = live_wav(1000)

    assert save_audio([data[:10], data[10:50], data[50:]], tmp_path / "a.wav") == len(data)

    with wave.open(str(tmp_path / "a.wav")) as saved:
        assert saved.getnframes() == 1000
        assert saved.readframes(1000) == b"\1\0" * 1000
    assert struct.unpack_from("<I", (tmp_path / "a.wav").read_bytes(), 4)[0] == len(data) - 8


def test_other_audio_is_saved_byte_for_byte(tmp_path: Path) -> None:
    for data in (b"", b"RIFF", b"fLaC" + bytes(100), b"RIFF\xff\xff\xff\xffWAVEJUNK" + bytes(100)):
        save_audio([data], tmp_path / "a")

        assert (tmp_path / "a").read_bytes() == data


def test_a_file_that_is_there_is_left_alone_when_no_audio_comes(tmp_path: Path) -> None:
    def refused() -> Iterator[bytes]:
        raise ConnectionError
        yield b""

    path = tmp_path / "keep.wav"
    path.write_bytes(b"precious")
    with pytest.raises(ConnectionError):
        save_audio(refused(), path)
    assert path.read_bytes() == b"precious"
