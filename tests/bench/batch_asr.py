"""``stagewave batch asr`` on short clips, beside faster-whisper in a plain loop over the same files.

    python -m tests.bench.batch_asr [--clips 2000] [--rounds 4] [--rival-rounds 4]

Both have the same model, cores and options, and take turns on parts of the folder, so that what else the
machine does hits both; the loop may leave the last parts out, since it is slow. Prints clips a second and
processor seconds a clip of each (of all the system's processes), the ratio, and how much the texts differ.
In the first two rounds the command is killed half way and started again, which counts; and the jobs are
counted: each clip has one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import jiwer
import soundfile

from stage_pipeline.engines.embedded.cores import usable_cores
from stage_pipeline.engines.embedded.model_files import whisper_folder
from stagewave import Client
from tests.bench.whole_system import EVERYTHING, whole_system
from tests.integration.conftest import ROOT, System
from workers.settings import Settings

SPEECH = ("two_cities.wav", "beckett.wav", "endgame_nagg_nell.wav")
LANGUAGE = "en"
COMMAND = [sys.executable, "-c", "from stagewave.cli import main; main()"]
KILLED_ROUNDS = 2
IDLE_S = 10.0


@dataclass(slots=True)
class Spent:
    """By one side, over all its rounds."""

    wall_s: float = 0.0
    processor_s: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rival-rounds", type=int, help="in how many of them the loop takes part")
    parser.add_argument("--rival", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rival:
        plain_loop(*options.rival)
        return
    (config,) = Settings().config
    with tempfile.TemporaryDirectory() as scratch, whole_system(config) as system:
        folders = cut_clips(Path(scratch) / "clips", options.clips, options.rounds)
        model = whisper_folder(Path(scratch) / "cache")
        system.backend.objects.ensure_bucket()
        system.start(*EVERYTHING)
        both = folders[: options.rival_rounds]
        compare(system, model, folders, both, Path(scratch))


def compare(system: System, model: Path, folders: list[Path], both: list[Path], scratch: Path) -> None:
    """``both``: the folders that the loop hears too."""
    loop = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.batch_asr", "--rival", model, scratch / "loop"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert loop.stdin and loop.stdout
    assert loop.stdout.readline() == "ready\n"
    began, busy = time.monotonic(), processor_s()
    time.sleep(IDLE_S)
    idle = (processor_s() - busy) / (time.monotonic() - began)
    ours, rival, rest = Spent(), Spent(), Spent()
    sizes = {folder: len(list(folder.iterdir())) for folder in folders}
    for number, folder in enumerate(folders):
        out = scratch / "ours" / folder.name
        began, busy = time.monotonic(), processor_s() + children_s()
        if number < KILLED_ROUNDS:
            kill_half_way(system, folder, out)
        recognise(system, folder, out)
        took_s = time.monotonic() - began
        spent = ours if folder in both else rest
        spent.wall_s += took_s
        spent.processor_s += processor_s() + children_s() - busy
        if folder not in both:
            print(f"round {number + 1}: ours {took_s:.1f} s", flush=True)
            continue
        told = ask(loop, folder)
        rival.wall_s += told["wall_s"]
        rival.processor_s += told["processor_s"]
        print(
            f"round {number + 1}: ours {took_s:.1f} s, faster-whisper {told['wall_s']:.1f} s",
            flush=True,
        )
    loop.stdin.close()
    loop.wait()
    with Client(system.url) as client:
        jobs = sum(1 for _ in client.jobs(type="asr", limit=100))
    clips, all_clips = sum(map(sizes.__getitem__, both)), sum(sizes.values())
    print(f"{usable_cores()} cores, load {os.getloadavg()[0]:.1f}; {all_clips} clips, {jobs} jobs")
    print(
        f"all clips: {all_clips / (ours.wall_s + rest.wall_s):.2f} clips/s; of the {clips} that both heard:"
    )
    print(f"the system while it has nothing to do: {idle:.3f} core s a second")
    for name, spent in (("stagewave batch asr", ours), ("faster-whisper, plain loop", rival)):
        print(f"{name:27} {clips / spent.wall_s:6.2f} clips/s  {spent.processor_s / clips:.3f} core s each")
    print(
        f"ratio of rates {rival.wall_s / ours.wall_s:.2f}, of processor time"
        f" {rival.processor_s / ours.processor_s:.2f}"
    )
    print(f"words that differ: {difference(scratch, both):.1%}")
    assert jobs == all_clips, "a clip has more than one job, or none"


def cut_clips(folder: Path, count: int, rounds: int) -> list[Path]:
    """Clips of 2 to 6 s, each another stretch of real speech, in one folder a round."""
    spec = find_spec("moonshine_voice")
    assert spec is not None and spec.origin is not None
    assets = Path(spec.origin).parent / "assets"
    speech = [soundfile.read(assets / name, dtype="int16") for name in SPEECH]
    chance = random.Random(7)
    folders = [folder / f"{number}" for number in range(rounds)]
    for made in folders:
        made.mkdir(parents=True)
    for number in range(count):
        wave, rate_hz = speech[number % len(speech)]
        size = int(chance.uniform(2, 6) * rate_hz)
        start = chance.randrange(len(wave) - size)
        soundfile.write(folders[number % rounds] / f"{number:05}.wav", wave[start : start + size], rate_hz)
    return folders


def command(system: System, folder: Path, out: Path) -> list[str]:
    asked = ["batch", "asr", str(folder), "--out", str(out), "--language", LANGUAGE, "--url", system.url]
    return [*COMMAND, *asked]


def recognise(system: System, folder: Path, out: Path) -> None:
    done = subprocess.run(command(system, folder, out), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def kill_half_way(system: System, folder: Path, out: Path) -> None:
    """SIGKILL, with jobs of all states under way."""
    half = len(list(folder.iterdir())) // 2
    running = subprocess.Popen(
        command(system, folder, out), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while len(list(out.glob("*.txt"))) < half:
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()


def plain_loop(model: Path, out: Path) -> None:
    """The rival: for each folder named on stdin, what anybody would write."""
    from faster_whisper import WhisperModel

    whisper = WhisperModel(
        str(model), device="cpu", compute_type="int8", cpu_threads=usable_cores(), local_files_only=True
    )
    print("ready", flush=True)
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        (out / folder.name).mkdir(parents=True)
        began, busy = time.monotonic(), time.process_time()
        for path in sorted(folder.iterdir()):
            segments, _info = whisper.transcribe(
                str(path),
                language=LANGUAGE,
                beam_size=5,
                temperature=0.0,
                condition_on_previous_text=False,
                vad_filter=True,
            )
            text = "".join(f"{segment.text.strip()}\n" for segment in segments)
            (out / folder.name / f"{path.stem}.txt").write_text(text)
        told = {"wall_s": time.monotonic() - began, "processor_s": time.process_time() - busy}
        print(json.dumps(told), flush=True)


def ask(loop: subprocess.Popen[str], folder: Path) -> dict[str, float]:
    assert loop.stdin and loop.stdout
    loop.stdin.write(f"{folder}\n")
    loop.stdin.flush()
    told: dict[str, float] = json.loads(loop.stdout.readline())
    return told


def difference(scratch: Path, folders: list[Path]) -> float:
    """The share of words in which the two sides differ."""
    said, heard = [], []
    for folder in folders:
        for path in sorted((scratch / "loop" / folder.name).iterdir()):
            if words := path.read_text().split():
                said.append(" ".join(words))
                heard.append(" ".join((scratch / "ours" / folder.name / path.name).read_text().split()))
    return float(jiwer.wer(said, heard))


def processor_s() -> float:
    """Of all processes of the system: they are this process's children, and theirs."""
    total = 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"--rival" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def children_s() -> float:
    """Of the commands that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    main()
