"""Collects what many threads want voiced, and voices it together in one thread of its own.

Fair: whoever waits longest comes first of those who can be voiced. A stream has one request at a time, so
none can crowd out another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Request:
    """Something to voice. ``work`` is the engine's; ``done`` is set when ``wave`` or ``error`` is there, or
    neither (canceled)."""

    work: object
    arrived: float = 0.0
    wave: Float32Wave | None = None
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Decoder(Protocol):
    """What the batcher's thread calls. ``choose`` may leave requests waiting (for a slot, say); it gets
    them oldest first and never gives more than fit in one pass."""

    def choose(self, waiting: Sequence[Request]) -> list[Request]: ...

    def full(self, waiting: Sequence[Request]) -> bool:
        """Whether to wait for more is of no use: nobody else could ask, or nothing more would fit."""
        ...

    def decode(self, chosen: Sequence[Request]) -> list[Float32Wave]: ...


class Batcher:
    """``wait_s``: how long the first of a batch waits for others, at most, once there is nothing else to
    do."""

    def __init__(
        self, decoder: Decoder, wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._decoder = decoder
        self._wait_s = wait_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[Request] = []
        self._closed = False
        self._ended = clock()
        self._thread = threading.Thread(target=self._run, name="token2wav-batcher", daemon=True)
        self._thread.start()

    def voice(self, request: Request) -> Float32Wave | None:
        """Block until it is voiced; None when it was canceled. Raises what went wrong."""
        with self._changed:
            if self._closed:
                raise _closed()
            request.arrived = self._clock()
            self._waiting.append(request)
            self._changed.notify_all()
        request.done.wait()
        if request.error is not None:
            raise request.error
        return request.wave

    def cancel(self, request: Request) -> None:
        """Forget a request that has not begun; one that has ends by itself."""
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)
                request.done.set()

    def look_again(self) -> None:
        """Something ``choose`` or ``full`` depends on has changed."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            chosen = self._collect()
            if not chosen:
                return
            try:
                waves = self._decoder.decode(chosen)
            except (
                Exception
            ) as error:  # the edge of the engine: whatever it was, these jobs failed, and others go on
                _log.exception("a batch of %d could not be voiced", len(chosen))
                for request in chosen:
                    request.error = _failure(error)
                    request.done.set()
                continue
            finally:
                self._ended = self._clock()
            for request, wave in zip(chosen, waves, strict=True):
                request.wave = wave
                request.done.set()

    def _collect(self) -> list[Request]:
        with self._changed:
            while not self._closed:
                chosen = self._decoder.choose(self._waiting) if self._waiting else []
                if not chosen:
                    self._changed.wait()
                    continue
                # Since the last pass ended, too: those it served come back now, and to go on with those
                # who waited meanwhile would split one crowd into two for good.
                began = max(self._waiting[0].arrived, self._ended)
                left = began + self._wait_s - self._clock()
                if left > 0 and not self._decoder.full(self._waiting):
                    self._changed.wait(left)
                    continue
                self._waiting = [request for request in self._waiting if request not in chosen]
                return chosen
            for request in self._waiting:
                request.error = _closed()
                request.done.set()
            self._waiting.clear()
            return []


def _closed() -> StagewaveError:
    return StagewaveError(ErrorCode.ENGINE_FAILED, "the engine is shutting down")


def _failure(error: Exception) -> StagewaveError:
    if isinstance(error, StagewaveError):
        return error
    failure = StagewaveError(ErrorCode.ENGINE_FAILED, "the audio could not be made")
    failure.__cause__ = error
    return failure
