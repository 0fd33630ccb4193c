"""Pieces in parallel: in order, bounded, ended at once, and failing at their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from stage_pipeline.engines.noop.thinker import NoopThinker
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.long_form.piece import Piece
from stage_pipeline.long_form.piece_runs import PieceRuns
from stage_pipeline.stages import GenerateRequest, Task, ThinkerDelta


class Counting(NoopThinker):
    """How many requests ran at a time, and which ever began."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.began: list[str] = []

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        deltas = super().generate(request)
        self.began.append(request.request_id)
        self.most = max(self.most, self._aborts.running)
        return deltas


def requests(*texts: str) -> Iterator[tuple[Piece, GenerateRequest]]:
    for index, text in enumerate(texts):
        yield Piece(index, index + 1, text), GenerateRequest(f"job/{index}", Task.TTS, text=text)


def counts(runs: PieceRuns) -> list[tuple[int, int]]:
    return [(run.piece.start, sum(len(delta.tokens) for delta in run.deltas)) for run in runs]


def test_pieces_come_in_order_whatever_is_done_first() -> None:
    engine = Counting()
    texts = [f"tokens={20 - 2 * index} delay_ms={5 if index % 2 else 1}" for index in range(10)]
    spare = threading.BoundedSemaphore(8)
    assert counts(PieceRuns(engine, requests(*texts), spare)) == [(i, 20 - 2 * i) for i in range(10)]
    assert engine.most == 4


def test_a_job_leaves_the_places_that_others_have_taken() -> None:
    engine = Counting()
    spare = threading.BoundedSemaphore(2)
    spare.acquire()
    assert counts(PieceRuns(engine, requests(*["tokens=9 delay_ms=2"] * 6), spare)) == [
        (index, 9) for index in range(6)
    ]
    assert engine.most == 2
    spare.release()  # a place too many would raise here


def test_nothing_runs_ahead_before_the_first_output() -> None:
    engine = Counting()
    runs = iter(PieceRuns(engine, requests(*["tokens=3"] * 5), threading.BoundedSemaphore(8)))
    deltas = next(runs).deltas
    next(deltas)
    assert engine.began == ["job/0"]
    next(deltas)
    assert "job/1" in engine.began


def test_an_abort_reaches_all_pieces() -> None:
    engine = Counting()
    runs = PieceRuns(engine, requests(*["tokens=500 delay_ms=10"] * 20), threading.BoundedSemaphore(8))
    threading.Timer(0.2, runs.abort).start()
    began = time.monotonic()
    assert counts(runs)[-1][1] < 500
    assert time.monotonic() - began < 2
    assert len(engine.began) == 4
    deadline = time.monotonic() + 2
    while engine._aborts.running:
        assert time.monotonic() < deadline


def test_a_piece_that_fails_ahead_fails_at_its_turn() -> None:
    runs = PieceRuns(
        NoopThinker(), requests("tokens=30 delay_ms=2", " ", "tokens=1"), threading.BoundedSemaphore(8)
    )
    made: list[int] = []
    with pytest.raises(StagewaveError) as raised:
        for run in runs:
            made.append(sum(len(delta.tokens) for delta in run.deltas))
    assert raised.value.code is ErrorCode.TEXT_EMPTY
    assert made == [30]
