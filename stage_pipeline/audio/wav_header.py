"""The 44 bytes before the samples of a mono 16-bit wav, the same number live and finished."""

from __future__ import annotations

import struct

from stage_pipeline.errors import ErrorCode, StagewaveError

WAV_HEADER_BYTES = 44
MAX_DATA_BYTES = 0xFFFFFFFF - WAV_HEADER_BYTES
"""A wav counts its bytes in 32 bits. The RF64 form would hold more, behind a longer header."""

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_UNKNOWN = 0xFFFFFFFF
"""The size of what has no end yet, as FFmpeg and OpenAI's speech endpoint write it; players, browsers
and libraries read on to the end of the stream. (0 means an empty file to many of them.)"""


def wav_header(rate_hz: int, data_bytes: int | None = None) -> bytes:
    """For ``data_bytes`` of samples; without it, for a live stream. Raises ``audio_too_long``."""
    if data_bytes is None:
        riff_bytes = data_bytes = _UNKNOWN
    else:
        check_data_bytes(data_bytes)
        riff_bytes = WAV_HEADER_BYTES - 8 + data_bytes
    return _HEADER.pack(
        b"RIFF", riff_bytes, b"WAVE",
        b"fmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16,
        b"data", data_bytes,
    )  # fmt: skip


def check_data_bytes(data_bytes: int) -> None:
    if data_bytes > MAX_DATA_BYTES:
        raise StagewaveError(
            ErrorCode.AUDIO_TOO_LONG, "the audio is too long for a wav file, which holds 4 GiB"
        )
