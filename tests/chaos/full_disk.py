"""Disks that are really full, under each part that writes; needs a mount namespace of its own.

    unshare --user --map-root-user --mount python -m tests.chaos.full_disk FOLDER

Prints the table; exit code 1 when anything was lost, doubled, or left lying about, when a process ended,
and when no disk was full to anybody.
"""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.rig import Rig, Row, table
from workers.states import Status

FULL_S = 1.5
PARTS = {"spool": 24, "broker": 24, "store": 160}
"""What writes into the home, and the megabytes of the disk it gets here."""


class Disk:
    """A small file system at ``folder``."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        folder.mkdir(mode=0o700, parents=True)
        options = f"size={megabytes}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
        self._filler = folder / "filler"

    def fill(self) -> None:
        """To the last byte."""
        block = bytes(64 * 1024)
        with self._filler.open("wb", buffering=0) as file:
            while block:
                try:
                    file.write(block)
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    block = block[: len(block) // 2]

    def free(self) -> None:
        self._filler.unlink()


def main() -> int:
    folder = Path(sys.argv[1])
    disks = {name: Disk(folder / "home" / name, megabytes) for name, megabytes in PARTS.items()}
    rig = Rig(folder, disk_floor_bytes=1024 * 1024)
    rows: list[Row] = []
    try:
        rig.start()
        for name, disk in disks.items():
            rows.append(
                rig.through(f"disk of the {name} full for {FULL_S:g} s", lambda rig, d=disk: _full(rig, d))
            )
        # The object store may have to be started anew: its index keeps the error.
        deaths = [line for line in rig.said if "ended" in line and "object store" not in line]
        met = [_told(folder, line) for line in ("disk_full", "no room on disk", "object store away")]
    finally:
        rig.close()
    print(table(rows))
    for row in rows:
        for wrong in (*row.lost, *row.doubled, *row.faults):
            print(f"  {row.name}: {wrong}")
    print(f"attempts cut off by a full disk: {met[0]}; jobs not taken for it: {met[1]}; {deaths}")
    print(f"attempts that waited for a full object store: {met[2]}")
    right = not any(row.lost or row.doubled or row.faults for row in rows)
    return int(not (right and all(met) and not deaths))


def _full(rig: Rig, disk: Disk) -> None:
    """With a job in each stage that has begun to write, and goes on."""
    client = rig.client()
    job = client.submit("tts", text="tokens=600", voice="slow", mode="async_chunk")
    rig.wait_until(lambda: rig.backend.jobs.get(job.id).first_audio_at is not None, "it speaks")
    disk.fill()
    time.sleep(FULL_S)
    disk.free()
    rig.wait_until(lambda: rig.backend.jobs.get(job.id).status.terminal, "it has ended")
    ended = rig.backend.jobs.get(job.id)
    assert ended.status is Status.SUCCEEDED, ended.error


def _told(folder: Path, what: str) -> int:
    logs = (folder / "home" / "logs").glob("*.log")
    return sum(what in line for log in logs for line in log.read_text().splitlines())


if __name__ == "__main__":
    sys.exit(main())
