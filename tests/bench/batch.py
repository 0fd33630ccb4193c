"""What a batch costs, what memory it takes, and what it does to somebody who waits.

    python -m tests.bench.batch [--lines 10000] [--kind tts|asr]
    python -m tests.bench.batch --speech [--rounds 30] [--kind tts|asr]

The first starts the whole system on the engine that does nothing and sends a batch of lines over HTTP, each
for one token of speech (both stages, a WAV in the store), or for a tenth of a second to hear (one stage).
It prints lines a second from POST to the last line of the output, the processor time of a line in each
process (which tells what they would be on a machine with nothing else to do), and the memory of each one
on the way. The second uses the embedded engine, and measures the time to first audio of a live job that
speaks, alone and with a batch beside it: of long texts to speak, or of recordings to hear.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.bench.long_audio import reading
from tests.bench.whole_system import EVERYTHING, report, whole_system
from tests.integration.conftest import ROOT, System, wav

CORES = 2
_Stats = dict[int, list[str]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--kind", choices=("tts", "asr"), default="tts")
    parser.add_argument("--speech", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with whole_system(ROOT / "configs" / "embedded.yaml" if options.speech else None) as system:
        system.backend.objects.ensure_bucket()
        system.ready_s = 180
        system.start("api")
        system.start(*(name for name in EVERYTHING if name != "api"))
        with httpx.Client(base_url=system.url, timeout=60) as client:
            if options.speech:
                beside(system, client, options.kind, options.rounds)
            else:
                throughput(system, client, options.kind, options.lines)


def throughput(system: System, client: httpx.Client, kind: str, count: int) -> None:
    system.backend.objects.put_bytes("uploads/a.wav", wav(1600), "audio/wav")
    lines = {
        "tts": {"type": "tts", "text": "tokens=1"},
        "asr": {"type": "asr", "audio_url": f"s3://{system.settings.s3_bucket}/uploads/a.wav"},
    }
    line = json.dumps(lines[kind])
    wait_end(client, send(client, [line] * 50))  # connections, imports
    processes = Processes({**{name: system.pid(name) for name in EVERYTHING}, **_services()})
    used, memory = processes.used_s(), [processes.memory_mb()]
    began = time.monotonic()
    batch_id = send(client, [line] * count)
    while True:
        batch = client.get(f"/v1/batches/{batch_id}", params={"wait": 5}).json()
        memory.append(processes.memory_mb())
        if batch["status"] in ("completed", "failed", "cancelled"):
            break
    with client.stream("GET", f"/v1/batches/{batch_id}/output") as answer:
        answered = sum(1 for _ in answer.iter_lines())
    took = time.monotonic() - began
    assert answered == batch["counts"]["succeeded"] == count, batch
    print(f"{count} lines in {took:.1f} s: {count / took:.0f} lines/s here, with whatever else runs")
    cost = {name: (then - used[name]) / count * 1000 for name, then in processes.used_s().items()}
    total = sum(cost.values())
    print("processor ms a line: " + ", ".join(f"{name} {ms:.2f}" for name, ms in cost.items()))
    print(f"in all {total:.2f} ms: {CORES * 1000 / total:.0f} lines/s on {CORES} idle cores")
    for name in used:
        along = [at[name] for at in memory]
        middle = along[len(along) // 2]
        print(f"{name:12} MB before {along[0]:.0f}, half way {middle:.0f}, at the end {along[-1]:.0f}")


def beside(system: System, client: httpx.Client, kind: str, rounds: int) -> None:
    """Live jobs, alone and beside a batch, taking turns so that both see the same machine."""
    text = "The train to the coast leaves at a quarter to ten, and it takes about an hour and a half."
    key = "uploads/speech.flac"
    system.backend.objects.put_bytes(key, reading(20)[0], "audio/flac")
    lines = {
        "tts": {"type": "tts", "text": " ".join([text] * 4)},
        "asr": {"type": "asr", "language": "en", "audio_url": f"s3://{system.settings.s3_bucket}/{key}"},
    }
    line = json.dumps(lines[kind])
    alone: list[float] = []
    busy: list[float] = []
    for _ in range(5):
        first_audio(client, text)
    for _ in range(max(1, rounds // 10)):
        alone += [first_audio(client, text) for _ in range(10)]
        batch_id = send(client, [line] * 2000)
        while client.get(f"/v1/batches/{batch_id}").json()["counts"]["succeeded"] < 5:
            time.sleep(0.2)
        busy += [first_audio(client, text) for _ in range(10)]
        client.post(f"/v1/batches/{batch_id}/cancel").raise_for_status()
        wait_end(client, batch_id)
    report("first audio of a live job, alone", alone)
    report("first audio of a live job, beside a batch", busy)
    print(f"p50 ratio {sorted(busy)[len(busy) // 2] / sorted(alone)[len(alone) // 2]:.2f}")


def first_audio(client: httpx.Client, text: str) -> float:
    posted = time.monotonic()
    job = (
        client.post("/v1/jobs", json={"type": "tts", "text": text, "live": True}).raise_for_status().json()
    )
    with client.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
        for _ in answer.iter_bytes():
            heard = time.monotonic()
            break
    client.get(f"/v1/jobs/{job['id']}", params={"wait": 30})
    return heard - posted


def send(client: httpx.Client, lines: list[str]) -> str:
    answer = client.post("/v1/batches", files={"file": ("lines.jsonl", "\n".join(lines).encode())})
    return str(answer.raise_for_status().json()["id"])


def wait_end(client: httpx.Client, batch_id: str) -> None:
    while client.get(f"/v1/batches/{batch_id}", params={"wait": 30}).json()["status"] not in (
        "completed",
        "cancelled",
    ):
        pass


class Processes:
    """The system's processes by name, each with all that it has started."""

    def __init__(self, roots: dict[str, int]) -> None:
        self._roots = roots

    def used_s(self) -> dict[str, float]:
        """Processor time so far."""
        return self._summed(lambda stat: (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"))

    def memory_mb(self) -> dict[str, float]:
        """Resident memory."""
        return self._summed(lambda stat: int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def _summed(self, figure: Callable[[list[str]], float]) -> dict[str, float]:
        stats = _stats()
        return {name: self._of_tree(pid, stats, figure) for name, pid in self._roots.items()}

    def _of_tree(
        self, pid: int, stats: dict[int, list[str]], figure: Callable[[list[str]], float]
    ) -> float:
        below = [child for child, stat in stats.items() if int(stat[1]) == pid]
        return figure(stats[pid]) + sum(self._of_tree(child, stats, figure) for child in below)


def _stats() -> _Stats:
    """The fields of ``/proc/<pid>/stat`` from the state on, of every process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
    return found


def _services() -> dict[str, int]:
    """Broker and store, which are children of this process."""
    found = {}
    for pid, stat in _stats().items():
        if int(stat[1]) == os.getpid():
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            for name, program in (("broker", "valkey"), ("store", "weed")):
                if program in command:
                    found[name] = pid
    return found


if __name__ == "__main__":
    main()
