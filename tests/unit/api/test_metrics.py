import re
from pathlib import Path

from api.metrics import _JOB_BUCKETS_MS, _cumulated

PRELUDE = Path(__file__).parents[3] / "workers" / "lua" / "prelude.lua"


def test_the_buckets_are_those_that_the_broker_counts_into():
    found = re.search(r"LATENCY_BUCKETS_MS = \{(.*?)\}", PRELUDE.read_text())
    assert found is not None
    assert tuple(int(bound) for bound in found[1].split(",")) == _JOB_BUCKETS_MS


def test_counts_add_up_to_a_histogram():
    buckets = dict(_cumulated({"50": 2, "250": 3, "count": 6, "sum": 999}))
    assert (buckets["0.05"], buckets["0.1"], buckets["0.25"], buckets["300.0"]) == (2, 2, 5, 5)
    assert buckets["+Inf"] == 6
