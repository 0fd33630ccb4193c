"""The command's exit codes; ``stagewave --help`` tells them too."""

from __future__ import annotations

OK = 0
FAILED = 1
"""The job failed or was canceled, or a check of ``doctor`` or a step of ``demo`` failed."""
USAGE = 2
"""Wrong arguments, a wrong setting or a wrong deploy config."""
UNREACHABLE = 3
NOT_FOUND = 4
REFUSED = 5
"""The server refused the request, or could not serve it."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""
