"""The entry of the ``stagewave`` command: it loads little, so that a Ctrl-C at any moment is quiet."""

from __future__ import annotations

import sys

from stagewave import exits


def main() -> None:
    """Runs the command; its exit code is the process's."""
    try:
        from stagewave.command import run

        code = run()
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    sys.exit(code)
