"""Runs the pieces of a job through one Thinker: several at a time, their output in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from stage_pipeline.long_form.piece import Piece
from stage_pipeline.stages import GenerateRequest, Thinker, ThinkerDelta

_AHEAD = 3
"""Pieces of a job that may run, or wait done, beside the one whose turn it is."""


@dataclass(frozen=True, slots=True)
class PieceRun:
    """A piece whose turn it is, and what is made of it."""

    piece: Piece
    request: GenerateRequest
    deltas: Iterator[ThinkerDelta]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A piece that runs before its turn; None ends its output, an exception is what ended it."""

    piece: Piece
    request: GenerateRequest
    output: SimpleQueue[ThinkerDelta | BaseException | None] = field(default_factory=SimpleQueue)


class PieceRuns:
    """One attempt's pieces. Iterated over by one thread; ``abort`` comes from any.

    ``requests`` is asked for the next piece when there is room for it, always by the thread that iterates:
    the piece whose turn it is runs in that thread, and only what others leave free of ``spare`` is used to
    run pieces ahead. Nothing runs ahead before the first output of the first piece is there.
    """

    def __init__(
        self, engine: Thinker, requests: Iterator[tuple[Piece, GenerateRequest]], spare: threading.Semaphore
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._spare = spare
        self._ahead: deque[_Ahead] = deque()
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._aborted = False

    def __iter__(self) -> Iterator[PieceRun]:
        """Each piece with its output; after ``abort`` both end early. The output of a piece is to be read
        before the next is asked for."""
        while not self._aborted:
            if self._ahead:
                ahead = self._ahead.popleft()
                yield PieceRun(ahead.piece, ahead.request, self._with_others_ahead(_output(ahead)))
            elif (following := next(self._requests, None)) is not None:
                piece, request = following
                yield PieceRun(piece, request, self.again(request))
            else:
                return

    def again(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        """Run the piece whose turn it is, with another request if need be."""
        return self._with_others_ahead(self._generate(request))

    def abort(self) -> None:
        """End what runs within one engine step, and start nothing more."""
        with self._lock:
            self._aborted = True
            running = list(self._running)
        for request_id in running:
            self._engine.abort(request_id)

    def _with_others_ahead(self, deltas: Iterator[ThinkerDelta]) -> Iterator[ThinkerDelta]:
        for delta in deltas:
            yield delta
            self._look_ahead()

    def _look_ahead(self) -> None:
        while len(self._ahead) < _AHEAD and not self._aborted and self._spare.acquire(blocking=False):
            try:
                piece, request = next(self._requests)
            except BaseException as end:
                self._spare.release()
                if isinstance(end, StopIteration):
                    return
                raise
            ahead = _Ahead(piece, request)
            self._ahead.append(ahead)
            threading.Thread(target=self._run_ahead, args=(ahead,), name="piece", daemon=True).start()

    def _run_ahead(self, ahead: _Ahead) -> None:
        end: BaseException | None = None
        try:
            for delta in self._generate(ahead.request):
                ahead.output.put(delta)
        except BaseException as error:  # raised again where the output is read
            end = error
        finally:
            self._spare.release()
            ahead.output.put(end)

    def _generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        with self._lock:
            self._running.add(request.request_id)
        try:
            for delta in self._engine.generate(request):
                # What was aborted before the engine knew of it goes on until it is looked at here.
                if self._aborted:
                    self._engine.abort(request.request_id)
                    return
                yield delta
        finally:
            with self._lock:
                self._running.discard(request.request_id)


def _output(ahead: _Ahead) -> Iterator[ThinkerDelta]:
    while (item := ahead.output.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item
