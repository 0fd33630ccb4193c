"""How a process ends that cannot run as it is configured: said in one line, and told apart from a crash."""

from __future__ import annotations

import sys
from typing import NoReturn

EXIT_CODE = 78
"""EX_CONFIG: started again as it is, the process would end in the same way."""
BEGINNING = "cannot start: "
"""Of the line that says why, the last that the process writes."""


def cannot_start(error: Exception) -> NoReturn:
    sys.stderr.write(f"{BEGINNING}{error}\n")
    sys.exit(EXIT_CODE)
