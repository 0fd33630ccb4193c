"""How fast the embedded engine is on this machine, both stages in one process.

    python tests/bench/embedded_engine.py [--cache FOLDER] [--utterances 200]

Prints the time to the first audio and the real-time factor of a paragraph, alone and eight at a time; the
real-time factor of recognition, alone and four at a time; and resident memory over many utterances, which
must be flat. Thinker and Token2Wav run one after the other for each clause, as they would for one listener.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from stage_pipeline.deploy import load_deploy
from stage_pipeline.engines.embedded.cores import usable_cores
from stage_pipeline.engines.load import load_thinker, load_token2wav
from stage_pipeline.stages import Float32Wave, GenerateRequest, Task, Thinker, Token2Wav

CONFIG = Path(__file__).parents[2] / "configs" / "embedded.yaml"
PARAGRAPH = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of"
    " foolishness. Dr. Smith paid $42.50 at 3:45 pm on May 6th, 2024, and walked 5 km home in the heat."
    " Twelve people saw him, and only one of them waved. What a day! Nobody knows why he did not take the"
    " bus, which costs $1.20 and is quick."
)


def speak(thinker: Thinker, token2wav: Token2Wav, name: str, text: str) -> tuple[float, float, Float32Wave]:
    """Seconds to the first audio, seconds in all, and the wave."""
    began = time.perf_counter()
    first_s = 0.0
    waves = []
    stream = token2wav.open(token2wav.voices()[0], seed=42)
    for delta in thinker.generate(GenerateRequest(name, Task.TTS, text=text)):
        if delta.tokens:
            for wave in stream.feed(delta.tokens, final=False):
                first_s = first_s or time.perf_counter() - began
                waves.append(wave)
    waves.extend(stream.feed((), final=True))
    return first_s, time.perf_counter() - began, np.concatenate(waves)


def recognise(thinker: Thinker, name: str, audio: Float32Wave) -> float:
    began = time.perf_counter()
    for _ in thinker.generate(GenerateRequest(name, Task.ASR, audio=audio)):
        pass
    return time.perf_counter() - began


def at_once(count: int, work) -> float:  # noqa: ANN001 - any callable of the thread's number
    """Wall seconds for ``count`` threads that start together."""
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def to_thinker_rate(wave: Float32Wave, rate_hz: int) -> Float32Wave:
    """Good enough for a clock: linear interpolation to 16 kHz."""
    count = len(wave) * 16_000 // rate_hz
    return np.interp(np.arange(count) * (rate_hz / 16_000), np.arange(len(wave)), wave).astype(np.float32)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cache", type=Path)
    arguments.add_argument("--utterances", type=int, default=200)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options.cache or Path(scratch), options.utterances)


def run(cache: Path, utterances: int) -> None:
    deploy = load_deploy(CONFIG)
    began = time.perf_counter()
    token2wav = load_token2wav(deploy, cache)
    loaded_t2w = time.perf_counter() - began
    began = time.perf_counter()
    thinker = load_thinker(deploy, cache)
    loaded_thinker = time.perf_counter() - began
    token2wav.warm_up()
    thinker.warm_up()
    print(f"cores {usable_cores()}, load {os.getloadavg()[0]:.1f} from others")
    print(
        f"loaded: Token2Wav {loaded_t2w:.1f} s, Thinker {loaded_thinker:.1f} s,"
        f" memory {resident_mb():.0f} MB"
    )

    runs = [speak(thinker, token2wav, f"alone-{index}", PARAGRAPH) for index in range(5)]
    wave = runs[0][2]
    audio_s = len(wave) / token2wav.sample_rate
    firsts = [first_s * 1000 for first_s, _, _ in runs]
    print(
        f"speech alone: {audio_s:.1f} s of audio, first audio {statistics.median(firsts):.0f} ms"
        f" (worst {max(firsts):.0f}), RTF {statistics.median(run[1] for run in runs) / audio_s:.3f}"
    )

    together: list[tuple[float, float]] = []

    def one(index: int) -> None:
        together.append(speak(thinker, token2wav, f"together-{index}", PARAGRAPH)[:2])

    wall_s = at_once(8, one)
    firsts = sorted(first_s * 1000 for first_s, _ in together)
    print(
        f"speech, 8 at a time: first audio {statistics.median(firsts):.0f} ms (worst {firsts[-1]:.0f}),"
        f" RTF of each {max(took for _, took in together) / audio_s:.3f},"
        f" of all {wall_s / (8 * audio_s):.3f}"
    )

    heard = to_thinker_rate(wave, token2wav.sample_rate)
    took = statistics.median(recognise(thinker, f"hear-{index}", heard) for index in range(3))
    wall_s = at_once(4, lambda index: recognise(thinker, f"hear-together-{index}", heard))
    print(
        f"recognition: RTF {took / audio_s:.3f} alone, {wall_s / (4 * audio_s):.3f} of all with 4 at a time"
    )

    words = PARAGRAPH.split()

    def few(thread: int) -> None:
        for index in range(thread, utterances, 8):
            size = 3 + index * 7 % 30
            text = " ".join(words[index % (len(words) - size) :][:size])
            speak(thinker, token2wav, f"memory-{index}", text)

    for label in ("first", "second"):
        at_once(8, few)
        now = resident_mb()
        print(f"memory after the {label} {utterances} utterances, 8 at a time: {now:.0f} MB")


if __name__ == "__main__":
    main()
