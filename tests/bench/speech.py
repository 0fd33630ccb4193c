"""Speech through the whole system, as clients get it.

    python -m tests.bench.speech [--jobs 200]

Prints, for the embedded engine: first audio at a live listener and RTF of a paragraph, one at a time and
eight at a time; recognition of what was spoken; and what each process keeps in memory after many jobs.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.bench.whole_system import EVERYTHING, report, whole_system
from tests.integration.conftest import System
from workers.settings import Settings

PARAGRAPH = (
    "On a bright cold day in April the clocks were striking twelve. Dr. Grey paid $42.50 for the ticket "
    "at 3:45 pm, took the seat by the window, and watched the 27 houses of the village go by. Nobody "
    "spoke. The train was late, as it had been every day since the 3rd of March, and nobody minded."
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=200, help="for the memory of each process")
    jobs = parser.parse_args().jobs
    with whole_system(Settings().config[0]) as system:
        system.backend.objects.ensure_bucket()
        system.start(*EVERYTHING)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: speak(system, live=False), range(4)))
            for at_once, count in ((1, 10), (8, 24)):
                began = time.monotonic()
                with ThreadPoolExecutor(at_once) as clients:
                    heard = list(clients.map(lambda _: speak(system, live=True), range(count)))
                wall_s = time.monotonic() - began
                report(f"first audio, live, {at_once} at a time", [first for first, _, _ in heard])
                audio_s = sum(length for _, _, length in heard)
                rtf = sorted(took / length for _, took, length in heard)
                print(f"{'  RTF of a job, p50':46} {rtf[len(rtf) // 2]:.3f}")
                print(f"{'  audio seconds a second':46} {audio_s / wall_s:.1f}")
            memory(system, "before")
            half = jobs // 2
            for done in (half, jobs):
                list(pool.map(lambda _: speak(system, live=False), range(half)))
                memory(system, f"after {done} more jobs")


def speak(system: System, *, live: bool) -> tuple[float, float, float]:
    """Seconds to the first audio byte and to the end, and the seconds of audio."""
    body = {"type": "tts", "text": PARAGRAPH, "live": live, "response_format": "pcm"}
    with httpx.Client(base_url=system.url, timeout=120) as client:
        began = time.monotonic()
        job = client.post("/v1/jobs", json=body).raise_for_status().json()
        first = size = 0.0
        if live:
            with client.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
                for block in answer.iter_bytes():
                    first = first or time.monotonic() - began
                    size += len(block)
        while (done := client.get(f"/v1/jobs/{job['id']}?wait=60").json())["status"] != "succeeded":
            assert done["status"] in ("queued", "running"), done
        took = time.monotonic() - began
    return first, took, done["usage"]["audio_out_s"]


def memory(system: System, when: str) -> None:
    sizes = {}
    for name in EVERYTHING:
        pids = [system.pid(name), *children(system.pid(name))]
        sizes[name] = sum(resident_mb(pid) for pid in pids)
    print(f"memory {when:30} " + "  ".join(f"{name} {mb:.0f} MB" for name, mb in sizes.items()), flush=True)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
