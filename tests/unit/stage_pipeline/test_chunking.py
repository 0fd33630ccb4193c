"""Where token histories are cut: the same windows whenever the tokens happen to come."""

from __future__ import annotations

import random

import pytest

from stage_pipeline.chunking import BoundaryWindows, ChunkPolicy, FixedWindows, Window


def windows_of(policy: ChunkPolicy, history: list[int], finished: bool = True) -> list[Window]:
    found: list[Window] = []
    consumed = 0
    while (window := policy.next_window(history, consumed, finished)) is not None:
        found.append(window)
        consumed = window.consumed
        if window.final:
            break
    return found


def windows_as_they_come(policy: ChunkPolicy, history: list[int], steps: list[int]) -> list[Window]:
    """The windows when the history grows by ``steps``, and its end is known only afterwards."""
    found: list[Window] = []
    consumed = come = 0
    for step in [*steps, 0]:
        come += step
        finished = step == 0
        while (window := policy.next_window(history[:come], consumed, finished)) is not None:
            found.append(window)
            consumed = window.consumed
            if window.final:
                return found
    return found


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [
        (92, [28, 28, 28, 17]),
        (28, [28, 3]),
        (27, [27]),
        (26, [26]),
        (20, [20]),
        (1, [1]),
        (163, [28] * 6 + [13]),
        (53, [28, 28, 3]),
    ],
)
def test_windows_have_the_reference_sizes(tokens: int, sizes: list[int]) -> None:
    windows = windows_of(FixedWindows(), list(range(tokens)))
    assert [w.stop - w.start for w in windows] == sizes
    assert [w.final for w in windows] == [False] * (len(sizes) - 1) + [True]


def test_windows_start_every_25_tokens() -> None:
    assert [w.start for w in windows_of(FixedWindows(), list(range(163)))] == [0, 25, 50, 75, 100, 125, 150]


def test_an_empty_history_ends_with_an_empty_final_window() -> None:
    assert windows_of(FixedWindows(), []) == [Window(0, 0, 0, final=True)]


def test_nothing_is_due_before_a_window_is_complete() -> None:
    assert FixedWindows().next_window(list(range(27)), 0, False) is None


@pytest.mark.parametrize("policy", [FixedWindows(), BoundaryWindows(boundary=2)])
def test_the_cut_does_not_depend_on_when_tokens_come(policy: ChunkPolicy) -> None:
    chance = random.Random(7)
    for _ in range(200):
        history = [chance.randrange(0, 12) for _ in range(chance.randrange(0, 120))]
        steps: list[int] = []
        while sum(steps) < len(history):
            steps.append(min(chance.randrange(1, 40), len(history) - sum(steps)))
        assert windows_as_they_come(policy, history, steps) == windows_of(policy, history)


@pytest.mark.parametrize("policy", [FixedWindows(), BoundaryWindows(boundary=2)])
def test_every_token_is_consumed_exactly_once(policy: ChunkPolicy) -> None:
    chance = random.Random(11)
    for _ in range(100):
        history = [chance.randrange(0, 9) for _ in range(chance.randrange(0, 200))]
        windows = windows_of(policy, history)
        edges = [0, *(w.consumed for w in windows)]
        assert [w.start for w in windows] == edges[:-1]
        assert edges[-1] == len(history)


@pytest.mark.parametrize(
    ("token", "kept"), [(0, True), (6560, True), (6561, False), (6562, False), (-1, False)]
)
def test_control_ids_never_reach_token2wav(token: int, kept: bool) -> None:
    assert FixedWindows().keeps(token) is kept


def test_a_boundary_window_ends_with_its_boundary() -> None:
    history = [1, 5, 2, 1, 7, 8, 2]
    windows = windows_of(BoundaryWindows(boundary=2), history)
    assert [history[w.start : w.stop] for w in windows] == [[1, 5, 2], [1, 7, 8, 2], []]
    assert windows[-1].final
