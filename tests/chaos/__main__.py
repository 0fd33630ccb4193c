"""Every break in every phase, and a soak with random breaks; prints the table.

    python -m tests.chaos [--soak 1000] [--quick]

Exit code 1 when anything was lost, doubled, or left lying about, and when a process grew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.chaos.breaks import breaks, random_breaks
from tests.chaos.memory import FLAT_MB
from tests.chaos.rig import Rig, Row, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--soak", type=int, default=1000, help="jobs under random breaks at the end")
    parser.add_argument("--quick", action="store_true", help="each kind of break once")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        try:
            rig.start()
            for name, break_it in breaks(thorough=not options.quick):
                print(f"… {name}", file=sys.stderr, flush=True)
                rows.append(rig.through(name, break_it))
            if options.soak:
                rows.append(soak(rig, options.soak))
        finally:
            rig.close()
    print(table(rows))
    print(rig.memory.told())
    for row in rows:
        for wrong in (*row.lost, *row.doubled, *row.faults):
            print(f"  {row.name}: {wrong}")
    grown = max(rig.memory.growth_mb().values(), default=0.0)
    return int(any(row.lost or row.doubled or row.faults for row in rows) or grown > FLAT_MB)


def soak(rig: Rig, jobs: int) -> Row:
    """A steady load with something broken every few seconds."""

    def until_done(rig: Rig) -> None:
        stop = threading.Event()
        breaker = threading.Thread(target=random_breaks, args=(rig, stop, 4.0, 1))
        breaker.start()
        time.sleep(jobs * 0.04 + 5)
        stop.set()
        breaker.join()

    print(f"… soak of {jobs} jobs", file=sys.stderr, flush=True)
    return rig.through(f"soak: {jobs} jobs, a break every 4 s", until_done, jobs=jobs)


if __name__ == "__main__":
    sys.exit(main())
