"""Real processes are broken under load, each kind of break once; then the books must be right.

``make chaos`` runs the thorough form and prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.breaks import Break, breaks
from tests.chaos.rig import Rig

RECOVERY_S = 20.0
KINDS = dict(breaks(thorough=False))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("chaos"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("break_it", KINDS.values(), ids=KINDS.keys())
def test_nothing_is_lost_and_nothing_doubled(
    rig: Rig, break_it: Break, request: pytest.FixtureRequest
) -> None:
    row = rig.through(request.node.callspec.id, break_it, jobs=18)
    assert row.accepted == 18
    assert row.in_flight > 0, "the break came when nothing ran: it showed nothing"
    assert row.lost == []
    assert row.doubled == []
    assert row.faults == []
    assert row.max_s <= RECOVERY_S
