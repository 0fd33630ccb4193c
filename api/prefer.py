"""``Prefer: wait=N`` (RFC 7240): how long a client lets an answer take."""

from __future__ import annotations

import re

_WAIT = re.compile(r'\s*wait\s*=\s*"?(\d{1,9})"?\s*(;.*)?', re.IGNORECASE)


def preferred_wait_s(header: str) -> int | None:
    """Seconds, of the first ``wait`` in the header; None without one. What cannot be read is passed
    over, as the RFC wants."""
    for preference in header.split(","):
        if found := _WAIT.fullmatch(preference):
            return int(found[1])
    return None
