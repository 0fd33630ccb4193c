"""What a program does not use it does not wait for."""

from __future__ import annotations

import subprocess
import sys

import stagewave


def test_importing_the_package_loads_no_client() -> None:
    code = (
        "import sys, stagewave; print(sorted({'httpx', 'standardwebhooks', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stdout.strip() == "[]", done.stderr


def test_all_that_the_package_offers_is_there() -> None:
    for name in stagewave.__all__:
        assert getattr(stagewave, name) is not None
