"""A part of a long job that a Thinker takes at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """``start`` and ``stop`` are its place in the whole: characters of a text, or samples of a recording.

    ``pause_after_ms`` is the silence between it and the next when both are spoken; ``at_ms`` is where in
    the recording its speech begins, for a job that keeps the original timing.
    """

    start: int
    stop: int
    text: str = ""
    pause_after_ms: int = 0
    at_ms: int | None = None
