"""Where a long recording is cut: in silence, so that no word is lost; what is no speech is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stage_pipeline.audio.recording import Recording
from stage_pipeline.long_form.piece import Piece
from stage_pipeline.long_form.speech_detector import FRAME, SpeechDetector
from stage_pipeline.stages import THINKER_RATE_HZ

_FRAMES_A_S = THINKER_RATE_HZ / FRAME
_BLOCK_FRAMES = 256  # eight seconds

# Silero's own: speech begins above the first, and goes on above the second.
_BEGINS, _GOES_ON = 0.5, 0.35
# A silence this long parts two stretches, and a stretch shorter than this is a click.
_LEAST_SILENCE = round(0.2 * _FRAMES_A_S)
_LEAST_SPEECH = round(0.15 * _FRAMES_A_S)
# Kept around speech: the network sees a word a little after it begins.
_MARGIN = round(0.3 * _FRAMES_A_S)
# A longer silence is in no piece.
_LONGEST_SILENCE = round(5 * _FRAMES_A_S)
# Parts what is spoken at one place in time from what is spoken at another: half a second, of which the
# network takes up to two frames for speech.
_TIMED_SILENCE = round(0.5 * _FRAMES_A_S) - 2
# Where in the margin speech begins: after the last two of these that are fainter than -26 dB of what
# follows, or than twice the faintest, which is the noise in a room.
_LOOK = THINKER_RATE_HZ // 100
_FAINT, _NOISE = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class _Speech:
    """A stretch of speech, in frames."""

    start: int
    stop: int


def cut_speech(
    recording: Recording,
    longest_s: float,
    *,
    timed: bool = False,
    between: Callable[[], None] = lambda: None,
) -> Iterator[Piece]:
    """Pieces of at most ``longest_s`` with all the speech in a recording, as they are found; none without
    speech. With ``timed`` a piece ends at each pause, so that each has its own time (``at_ms``); otherwise
    they are as long as they may be, and a recording that is no longer comes whole.

    ``between`` is called now and then, and may raise to end it.
    """
    stretches = _speech(recording, int(longest_s * _FRAMES_A_S) - 2 * _MARGIN, between)
    if not timed and recording.duration_s <= longest_s:
        if next(stretches, None) is not None:
            yield Piece(0, recording.samples)
        return
    longest_silence = _TIMED_SILENCE if timed else _LONGEST_SILENCE
    most = int(longest_s * _FRAMES_A_S) - 2 * _MARGIN
    held: list[_Speech] = []
    last_stop = 0
    for stretch in stretches:
        while held:
            if stretch.start - held[-1].stop >= longest_silence:
                count = len(held)
            elif stretch.stop - held[0].start > most:
                count = _best_cut([*held, stretch], most)
            else:
                break
            following = [*held, stretch][count].start
            yield _piece(held[:count], last_stop, following, recording, timed=timed)
            last_stop = held[count - 1].stop
            held = held[count:]
        held.append(stretch)
    if held:
        end = -(-recording.samples // FRAME)
        yield _piece(held, last_stop, end + _MARGIN, recording, timed=timed)


def _best_cut(stretches: list[_Speech], most: int) -> int:
    """How many of them to take: up to the longest silence, among those that leave half a piece at least."""
    silences = [
        (after.start - before.stop, count)
        for count, (before, after) in enumerate(zip(stretches, stretches[1:], strict=False), 1)
        if before.stop - stretches[0].start >= most // 2
    ]
    return max(silences)[1] if silences else len(stretches) - 1


def _piece(
    stretches: list[_Speech], last_stop: int, following: int, recording: Recording, *, timed: bool
) -> Piece:
    """With a margin of silence, of which the neighbours get their half."""
    first, last = stretches[0], stretches[-1]
    start = max(first.start - _MARGIN, (last_stop + first.start) // 2)
    stop = min(last.stop + _MARGIN, (last.stop + following) // 2)
    at_ms = None
    if timed:
        at_ms = _onset(recording, start * FRAME, first.start * FRAME) * 1000 // THINKER_RATE_HZ
    return Piece(start * FRAME, min(stop * FRAME, recording.samples), at_ms=at_ms)


def _onset(recording: Recording, start: int, heard: int) -> int:
    """The sample where speech begins that the network has heard from ``heard`` on: after a long silence it
    may take a third of a second to hear it. Not before ``start``; where there is no silence, ``heard``."""
    wave = recording.read(start, heard + _MARGIN * FRAME)
    parts = wave[: len(wave) // _LOOK * _LOOK].reshape(-1, _LOOK)
    level = np.sqrt(np.square(parts, dtype=np.float64).mean(1))
    quiet = level <= max(level.max() * _FAINT, level.min() * _NOISE)
    before = (heard - start) // _LOOK
    last = np.flatnonzero(quiet[:before] & quiet[1 : before + 1])
    return start + (int(last[-1]) + 2) * _LOOK if len(last) else heard


def _speech(recording: Recording, most: int, between: Callable[[], None]) -> Iterator[_Speech]:
    """Stretches of at most ``most`` frames; speech without a pause is cut where it is least like speech."""
    start: int | None = None  # of the stretch under way, and from where it may have ended
    quiet: int | None = None
    likely: list[float] = []  # of the stretch under way
    frame = -1
    for frame, probability in enumerate(_probabilities(recording, between)):
        if start is None:
            if probability < _BEGINS:
                continue
            start, quiet, likely = frame, None, []
        likely.append(probability)
        if probability >= _BEGINS:
            quiet = None
        elif probability < _GOES_ON:
            quiet = frame if quiet is None else quiet
            if frame + 1 - quiet >= _LEAST_SILENCE:
                if quiet - start >= _LEAST_SPEECH:
                    yield _Speech(start, quiet)
                start = None
                continue
        if len(likely) >= most:
            cut = most // 2 + int(np.argmin(likely[most // 2 :]))
            yield _Speech(start, start + cut)
            start, likely = start + cut, likely[cut:]
    if start is not None:
        stop = frame + 1 if quiet is None else quiet
        if stop - start >= _LEAST_SPEECH:
            yield _Speech(start, stop)


def _probabilities(recording: Recording, between: Callable[[], None]) -> Iterator[float]:
    detector = SpeechDetector()
    size = _BLOCK_FRAMES * FRAME
    for start in range(0, recording.samples, size):
        between()
        yield from detector.feed(recording.read(start, start + size)).tolist()
