"""Clocks that a test can set wrong, of each process by itself."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent


class Clocks:
    """``python`` is the environment of Python processes, ``broker`` that of the broker; both may be set at
    any moment while they run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._broker = folder / "broker"
        self._broker.write_bytes(struct.pack("q", 0))
        self.python = {"PYTHONPATH": str(_HERE), "CHAOS_CLOCKS": str(folder)}

    def shift(self, name: str, seconds: float) -> None:
        """Seconds that the clock of process ``name`` is wrong by."""
        (self._folder / name).write_text(str(seconds))

    def shift_broker(self, seconds: int) -> None:
        with self._broker.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def broker(self) -> dict[str, str] | None:
        """None where there is no C compiler: then the broker's clock cannot be set wrong."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        library = self._folder / "shifted.so"
        source = _HERE / "shifted.c"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60
        )
        return {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._broker)}
