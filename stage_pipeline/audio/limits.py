"""What one piece of audio may cost, checked on what a file claims before anything is spent on it."""

from __future__ import annotations

from dataclasses import dataclass

from stage_pipeline.errors import ErrorCode, StagewaveError

MIN_RATE_HZ = 1_000
"""Below this nothing can be understood, and resampling would blow a few bytes up a thousandfold."""
MAX_RATE_HZ = 768_000
"""The highest rate that recorders sell."""
MAX_CHANNELS = 255
"""The most that Vorbis and Opus can say; a block's memory grows with it."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Each check raises a ``StagewaveError`` that names the limit."""

    size_bytes: int = 512 * 1024 * 1024
    duration_s: float = 4 * 3600

    def check_size(self, size_bytes: int) -> None:
        if size_bytes == 0:
            raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the audio is empty: it has no bytes")
        if size_bytes > self.size_bytes:
            raise StagewaveError(
                ErrorCode.TOO_LARGE, f"the audio is larger than the limit of {self.size_bytes} bytes"
            )

    def check_form(self, rate_hz: int, channels: int) -> None:
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise StagewaveError(
                ErrorCode.NOT_AUDIO,
                f"the audio's sample rate is not between {MIN_RATE_HZ} and {MAX_RATE_HZ} Hz",
            )
        if not 1 <= channels <= MAX_CHANNELS:
            raise StagewaveError(
                ErrorCode.NOT_AUDIO, f"the audio's channel count is not between 1 and {MAX_CHANNELS}"
            )

    def check_duration(self, duration_s: float) -> None:
        if duration_s > self.duration_s:
            raise self.too_long()

    def too_long(self) -> StagewaveError:
        return StagewaveError(
            ErrorCode.AUDIO_TOO_LONG, f"the audio is longer than the limit of {self.duration_s:g} s"
        )
