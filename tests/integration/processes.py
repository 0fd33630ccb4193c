"""Processes of a test: started with an environment of their own, logged, and ended in any case."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STAGEWAVE = [sys.executable, "-c", "from stagewave.cli import main; main()"]


class Processes:
    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **environ}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str, command: Sequence[str] = STAGEWAVE, **environ: str) -> None:
        """``stagewave`` with these arguments."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*command, *arguments],
                cwd=self._folder,
                env=self._environ | environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """To its end."""
        return subprocess.run(
            [*STAGEWAVE, *arguments],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        process.wait(20)

    def until(self, true: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended:\n{self.logs()}"
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        tails = []
        for path in sorted(self._folder.glob("*.log")):
            tails.append(f"--- {path.stem}\n" + "\n".join(path.read_text().splitlines()[-15:]))
        return "\n".join(tails)

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
