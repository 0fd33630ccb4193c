"""The models as they are made once, whatever happens meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MAKE = (
    "import sys\n"
    "from pathlib import Path\n"
    "from stage_pipeline.engines.embedded.model_files import whisper_folder\n"
    "print(whisper_folder(Path(sys.argv[1])))\n"
)


def start(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", MAKE, str(cache)], stdout=subprocess.PIPE, text=True)


def test_several_processes_that_start_at_once_get_one_whole_model(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]

    folders = {process.communicate(timeout=60)[0].strip() for process in processes}

    assert len(folders) == 1
    (folder,) = (Path(name) for name in folders)
    assert (folder / "model.bin").stat().st_size == 2 * 72_608_766
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]


def test_a_process_killed_on_the_way_leaves_no_half_a_model(tmp_path: Path) -> None:
    killed = start(tmp_path)
    deadline = time.monotonic() + 30
    while not any(tmp_path.glob(".whisper*/made/model.bin")) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()

    folder = Path(start(tmp_path).communicate(timeout=60)[0].strip())

    assert (folder / "model.bin").stat().st_size == 2 * 72_608_766
