"""What each process keeps in memory while the system works."""

from __future__ import annotations

import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

EVERY_S = 1.0
LEAST_SAMPLES = 20
"""Of a process that lives for less than so many seconds nothing can be said."""
OWN = ("api", "thinker", "token2wav", "io", "scheduler")
"""What has to stay flat. The broker keeps what every job leaves until its retention is over, and the object
store has a limit of its own."""
FLAT_MB = 40.0
"""What a soak of 1000 jobs adds when each leaves 40 kB. A library that is loaded late is 30 MB, and
counts as growth; besides that 2 MB were measured."""


class Memory:
    """Samples from ``start`` to ``stop``. ``processes``: the pid of each process that runs, by name."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._samples: dict[tuple[str, int], list[float]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def growth_mb(self) -> dict[str, float]:
        """How much each process of ours grew, from the second quarter of its life, when it has loaded what
        it needs, to the last. Of one that was started anew, the life in which it grew most."""
        grown: dict[str, float] = {}
        for (name, _), sizes in list(self._samples.items()):
            if name in OWN and len(sizes) >= LEAST_SAMPLES:
                quarter = len(sizes) // 4
                before, after = sizes[quarter : 2 * quarter], sizes[-quarter:]
                by = statistics.median(after) - statistics.median(before)
                grown[name] = max(grown.get(name, by), by)
        return grown

    def told(self) -> str:
        """A line for a person: the last size of each process, and its growth."""
        grown = self.growth_mb()
        last = {name: sizes[-1] for (name, _), sizes in self._samples.items()}
        parts = [
            f"{name} {mb:.0f}" + (f" ({grown[name]:+.1f})" if name in grown else "")
            for name, mb in last.items()
        ]
        return "memory at the end, and growth, in MB: " + ", ".join(parts)

    def _sample(self) -> None:
        while not self._stop.wait(EVERY_S):
            for name, pid in self._processes().items():
                size = _with_children_mb(pid)
                if size:
                    self._samples[name, pid].append(size)


def _with_children_mb(pid: int) -> float:
    """0 for a process that has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
    return own / 1024 + sum(_with_children_mb(int(child)) for child in children)
