"""Whether another process of this machine still runs."""

from __future__ import annotations

import os


def process_runs(pid: int) -> bool:
    """Anybody's, ours or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
