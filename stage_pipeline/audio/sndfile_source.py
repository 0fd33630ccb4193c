"""wav, flac and Ogg (Opus, Vorbis) through libsndfile, in this process: no start-up cost.

mp3 is left to FFmpeg: libsndfile stops at the length in the first frame, so that two mp3 files joined
to one lose the second, gives up after a kilobyte of garbage, and writes to stderr.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import BinaryIO

import numpy as np
import soundfile

from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.audio.source import AudioSource, Block
from stage_pipeline.stages import Float32Wave

_BLOCK_FRAMES = 4096
"""An error inside a block loses the whole block, so it is short: a tenth of a second or so."""
_UNKNOWN_FRAMES = 2**63 - 1
"""What libsndfile says of a flac that was streamed, whose header has no length."""
_OGG_BEGIN = b"OggS\0\x02"
"""How a stream's first page begins."""
_SCAN_BYTES = 1024 * 1024


def is_sndfile(head: bytes) -> bool:
    """Whether the first 12 bytes are of a format that libsndfile is trusted with."""
    return head[:4] in (b"fLaC", b"OggS") or (
        head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE"
    )


def open_sndfile(file: BinaryIO, limits: DecodeLimits) -> AudioSource | None:
    """None when libsndfile finds nothing it can play, or would leave out a part."""
    if _is_chained_ogg(file):
        return None
    file.seek(0)
    try:
        sound = _ForwardOnly(file)
        format = sound.format.lower()
    except (
        soundfile.SoundFileError,
        LookupError,
    ):  # LookupError: a format that the wrapper has no name for
        return None
    limits.check_form(sound.samplerate, sound.channels)
    if sound.frames != _UNKNOWN_FRAMES:
        limits.check_duration(sound.frames / sound.samplerate)
    first = _read(sound)
    if not len(first):
        return None
    name = "wav" if format.startswith("wav") else format
    return AudioSource(name, sound.samplerate, sound.channels, _blocks(sound, first))


class _ForwardOnly(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no types
    """Reads on and on: the wrapper seeks after each read of a seekable file, which costs a bisection
    and a preroll each time in Ogg."""

    def seekable(self) -> bool:
        return False


def _blocks(sound: _ForwardOnly, first: Float32Wave) -> Generator[Block]:
    with sound:
        block = first
        while len(block):
            yield Block(sound.samplerate, block)
            block = _read(sound)


def _read(sound: _ForwardOnly) -> Float32Wave:
    """The next ``[frames, channels]``; an empty block at the end of what can be decoded."""
    try:
        block: Float32Wave = sound.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)
        return block
    except soundfile.SoundFileError:  # cut short or damaged: what came before stands
        return np.zeros((0, sound.channels), np.float32)


def _is_chained_ogg(file: BinaryIO) -> bool:
    """Whether more than one stream begins in an Ogg file: libsndfile plays only the first."""
    file.seek(0)
    if file.read(4) != _OGG_BEGIN[:4]:
        return False
    file.seek(0)
    begins, rest = 0, b""
    while data := file.read(_SCAN_BYTES):
        data = rest + data
        begins += data.count(_OGG_BEGIN)
        rest = data[1 - len(_OGG_BEGIN) :]
    return begins > 1
