"""What the model makes, taken apart: text, audio tokens, and when either is worth handing on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stage_pipeline.chunking import ChunkPolicy
from stage_pipeline.engines.step_audio2.thinker.vocabulary import Vocabulary

TEXT_EVERY_S = 0.05
"""Text is read by people, and each piece of it is an event: more often would only cost."""
# A character has four bytes at most; what is no character after as many tokens never becomes one.
_LONGEST_CHARACTER = 4


class Spelling:
    """Text ids to text, as they come; half a character waits for its other half."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._waiting: list[int] = []

    def add(self, ids: Sequence[int], *, last: bool = False) -> str:
        # Byte-level tokens: what they spell side by side is what they spell alone, put together.
        self._waiting += ids
        text = self._vocabulary.text(self._waiting)
        if text.endswith("\ufffd") and not last:
            whole = self._whole()
            text = self._vocabulary.text(self._waiting[:whole])
            del self._waiting[:whole]
        else:
            self._waiting.clear()
        return text

    def _whole(self) -> int:
        """How many of the waiting ids spell whole characters."""
        count = len(self._waiting)
        for begin in range(count - 1, max(-1, count - 1 - _LONGEST_CHARACTER), -1):
            if not self._vocabulary.text(self._waiting[:begin]).endswith("\ufffd"):
                return begin
        return count


@dataclass(frozen=True, slots=True)
class Part:
    """What has come since the part before. ``finish``: ``stop``, ``length`` or ``abort`` in the last."""

    ids: tuple[int, ...] = ()
    text_ids: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    finish: str | None = None
    prompt_tokens: int = 0


class Answer:
    """One request's growing output, between the engine's loop, which adds, and the one thread that takes.

    The thread is not woken for each token, which would cost more than the token at a hundred requests a
    step: only when audio tokens complete a window, when text has waited a while, and at the end.
    ``prior_codes``: what earlier attempts made. ``longest_codes``: with so many the answer is cut."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        policy: ChunkPolicy,
        prior_codes: Sequence[int],
        longest_codes: int | None,
    ) -> None:
        self._first_special = vocabulary.first_special
        self._first_code = vocabulary.first_code
        self._policy = policy
        self._history = list(prior_codes)
        self._longest = longest_codes
        self._consumed = 0
        self._look_for_windows()
        self._ids: list[int] = []
        self._text_ids: list[int] = []
        self._codes: list[int] = []
        self._finish: str | None = None
        self._prompt_tokens = 0
        self._error: Exception | None = None
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._taken_at = 0.0

    def add(self, ids: Sequence[int], finish: str | None, prompt_tokens: int) -> bool:
        """From the loop. Whether the answer has ended with this, by the model or by its length."""
        with self._lock:
            if self._finish is not None:
                return True
            self._prompt_tokens = prompt_tokens
            for number in ids:
                self._ids.append(number)
                code = number - self._first_code
                if number < self._first_special:
                    self._text_ids.append(number)
                elif self._policy.keeps(code):
                    self._codes.append(code)
                    self._history.append(code)
                    if len(self._history) == self._longest:
                        finish = "length"
                        break
            self._finish = finish
            ended = finish is not None
        complete = self._look_for_windows()
        if complete or ended or (self._text_ids and time.monotonic() - self._taken_at >= TEXT_EVERY_S):
            self._news.set()
        return ended

    def end(self, reason: str, error: Exception | None = None) -> None:
        """From the loop: nothing more comes. With an error, ``take`` raises it."""
        with self._lock:
            self._finish = self._finish or reason
            self._error = self._error or error
        self._news.set()

    def take(self) -> Part:
        """From the one thread: waits for the next part. The last one has ``finish``."""
        self._news.wait()
        with self._lock:
            self._news.clear()
            if self._error is not None:
                raise self._error
            part = Part(
                tuple(self._ids),
                tuple(self._text_ids),
                tuple(self._codes),
                self._finish,
                self._prompt_tokens,
            )
            self._ids.clear()
            self._text_ids.clear()
            self._codes.clear()
            self._taken_at = time.monotonic()
        return part

    def _look_for_windows(self) -> bool:
        """Whether the history has got a new window that Token2Wav can voice."""
        complete = False
        while (window := self._policy.next_window(self._history, self._consumed, False)) is not None:
            self._consumed = window.consumed
            complete = True
        return complete
