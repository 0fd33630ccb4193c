"""Gives freed memory back to the system: the C library keeps what lies between blocks that are in use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _trimmer() -> Callable[[], object]:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return lambda: None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


give_back = _trimmer()
"""Costs some milliseconds: for the end of an utterance, not for each block of one."""
