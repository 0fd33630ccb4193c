"""How far a run has come, and how long it still takes."""

from __future__ import annotations

from collections import Counter

from stagewave.batch.tally import Tally


def test_what_was_skipped_does_not_count_as_speed() -> None:
    now = [100.0]
    tally = Tally(clock=lambda: now[0])

    tally.total, tally.skipped, tally.done, tally.failures = 100, 40, 18, Counter(not_audio=2)
    now[0] += 10

    assert (tally.seen, tally.rate, tally.eta_s) == (60, 2.0, 20.0)


def test_there_is_no_end_in_sight_until_all_is_counted_and_something_done() -> None:
    tally = Tally(clock=lambda: 1.0)
    assert tally.eta_s is None
    tally.total = 10
    assert tally.eta_s is None
