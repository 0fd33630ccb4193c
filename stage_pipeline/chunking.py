"""Where a token history is cut into windows for Token2Wav: pure functions, the same on both sides.

The Thinker's side hands tokens on as soon as they complete a window; Token2Wav's side feeds the windows.
Both ask the same policy, so what is sent is exactly what can be voiced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

STEP_AUDIO_2_FIRST_CONTROL_ID = 6561
"""Ids from here on (audio end, padding) are no codebook entries: they never reach Token2Wav."""


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens to feed at once: ``history[start:stop]``; afterwards the consumed pointer is ``consumed``.

    ``stop - consumed`` tokens are lookahead: they are fed again at the head of the next window.
    A final window may be empty (``start == stop``): an end marker.
    """

    start: int
    stop: int
    consumed: int
    final: bool


class ChunkPolicy(Protocol):
    """Says which window comes next."""

    def keeps(self, token: int) -> bool:
        """Whether a token may reach Token2Wav at all."""
        ...

    def next_window(self, history: Sequence[int], consumed: int, finished: bool) -> Window | None:
        """The window after ``consumed`` tokens of ``history`` (kept tokens only; the voice's prompt
        tokens never count), or None while it is not complete. With ``finished`` there is always one
        more window, and exactly one of them is final."""
        ...


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Step-Audio2: ``size`` tokens plus ``lookahead``, moving by ``size``; the last takes the rest."""

    size: int = 25
    lookahead: int = 3
    first_control_id: int = STEP_AUDIO_2_FIRST_CONTROL_ID

    def keeps(self, token: int) -> bool:
        return 0 <= token < self.first_control_id

    def next_window(self, history: Sequence[int], consumed: int, finished: bool) -> Window | None:
        # The cut must not depend on when the end is known, or the same tokens would sound different:
        # a complete window is never final, and the last one takes the rest (its own lookahead at least).
        full = consumed + self.size + self.lookahead
        if len(history) >= full:
            return Window(consumed, full, consumed + self.size, final=False)
        if finished:
            return Window(consumed, len(history), len(history), final=True)
        return None


@dataclass(frozen=True, slots=True)
class BoundaryWindows:
    """Windows that end with a boundary token (a clause's end), for engines whose tokens carry one."""

    boundary: int

    def keeps(self, token: int) -> bool:
        return token >= 0

    def next_window(self, history: Sequence[int], consumed: int, finished: bool) -> Window | None:
        for index in range(consumed, len(history)):
            if history[index] == self.boundary:
                return Window(consumed, index + 1, index + 1, final=False)
        if finished:
            return Window(consumed, len(history), len(history), final=True)
        return None
