"""Real processes are broken under load, each kind of break once; then the books must be right.

``make chaos`` runs the thorough form and prints the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import datetime

import httpx
import pytest

from tests.chaos.breaks import Break, breaks
from tests.chaos.memory import FLAT_MB, OWN
from tests.chaos.rig import Rig

RECOVERY_S = 20.0
JOBS = 12
"""Each kind of job twice."""
KINDS = dict(breaks(thorough=False))
UNHEARD = [
    KINDS[name] for name in ("thinker killed", "token2wav killed", "both model pools killed at once")
]


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
    row = rig.through(request.node.callspec.id, break_it, jobs=JOBS)
    assert row.accepted == JOBS
    assert row.in_flight > 0, "the break came when nothing ran: it showed nothing"
    assert row.lost == []
    assert row.doubled == []
    assert row.faults == []
    assert row.max_s <= RECOVERY_S
    if break_it in UNHEARD:
        assert row.cut_off == 0, "a live listener does not hear that a worker was lost"


def test_readiness_says_at_once_which_pool_was_killed_and_since_when(rig: Rig) -> None:
    rig.wait_until(lambda: httpx.get(f"{rig.url}/readyz").status_code == 200, "all is ready")
    rig.kill("thinker", down_s=0.5)
    told = httpx.get(f"{rig.url}/readyz")
    checks = told.json()["checks"]
    assert told.status_code == 503
    assert [name for name, check in checks.items() if not check["ok"]] == ["pool:thinker.noop"]
    gone = checks["pool:thinker.noop"]
    assert gone["detail"] in ("no worker", "starting")
    assert 0 < time.time() - datetime.fromisoformat(gone["since"]).timestamp() < 5
    rig.wait_until(lambda: httpx.get(f"{rig.url}/readyz").status_code == 200, "all is ready again")


@pytest.mark.skipif(sys.platform != "linux", reason="sizes come from /proc")
def test_no_process_has_grown(rig: Rig) -> None:
    """Stands last: it looks back on all that this system went through."""
    grown = rig.memory.growth_mb()
    assert set(grown) == set(OWN)
    assert max(grown.values()) < FLAT_MB, rig.memory.told()
