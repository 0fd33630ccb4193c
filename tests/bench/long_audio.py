"""Hours of speech through the whole system: how fast they are heard, and in how much memory.

    python -m tests.bench.long_audio [--minutes 120]

A person who reads, again and again, with pauses, is uploaded and transcribed by the embedded engine. Prints
times real time, the Thinker's resident memory over the quarters of the job (it must be flat), and the word
error rate of all that was heard.
"""

from __future__ import annotations

import argparse
import io
import re
import time
from importlib.resources import files

import httpx
import jiwer
import numpy as np
import soundfile

from tests.bench.speech import children, resident_mb
from tests.bench.whole_system import EVERYTHING, whole_system
from tests.integration.conftest import System
from tests.unit.engines.test_embedded_recognition import TWO_CITIES
from workers.settings import Settings

LOOK_S = 1.0
PAUSES_S = (0.7, 2.0, 6.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=120)
    data, times, seconds = reading(60 * parser.parse_args().minutes)
    print(f"{seconds:.0f} s of audio, {len(data) / 1e6:.0f} MB", flush=True)
    with whole_system(Settings().config[0]) as system:
        system.backend.objects.ensure_bucket()
        system.start(*EVERYTHING)
        heard(system, reading(30)[0])
        before_mb = thinker_mb(system)
        text, took_s, memory = heard(system, data)
    print(f"taken {took_s:.1f} s: {seconds / took_s:.1f} times real time")
    quarters = [max(part) for part in np.array_split(np.array(memory), 4) if len(part)]
    shown = ", ".join(f"{mb:.0f}" for mb in quarters)
    print(f"Thinker's memory: {before_mb:.0f} MB before, at most {shown} MB in each quarter of the job")
    said = " ".join([TWO_CITIES] * times)
    print(f"word error rate {jiwer.wer(said, ' '.join(re.findall('[a-z]+', text.lower()))):.4f}")


def reading(least_s: float) -> tuple[bytes, int, float]:
    """A flac of at least so many seconds, how often the text is read in it, and its seconds."""
    with files("moonshine_voice").joinpath("assets", "two_cities.wav").open("rb") as file:
        once, rate_hz = soundfile.read(file, dtype="int16")
    out = io.BytesIO()
    times = samples = 0
    with soundfile.SoundFile(out, "w", rate_hz, 1, format="FLAC") as sound:
        while samples < least_s * rate_hz:
            pause = np.zeros(int(PAUSES_S[times % len(PAUSES_S)] * rate_hz), np.int16)
            for part in (once, pause):
                sound.write(part)
                samples += len(part)
            times += 1
    return out.getvalue(), times, samples / rate_hz


def heard(system: System, data: bytes) -> tuple[str, float, list[float]]:
    """What was recognised, the seconds from POST to the end, and the Thinker's MB, look by look."""
    memory = []
    with httpx.Client(base_url=system.url, timeout=300) as client:
        began = time.monotonic()
        form = {"type": "asr", "language": "en"}
        made = client.post("/v1/jobs", data=form, files={"file": ("long.flac", data)}).raise_for_status()
        url = f"/v1/jobs/{made.json()['id']}"
        while (job := client.get(url).json())["status"] != "succeeded":
            assert job["status"] in ("queued", "running"), job
            memory.append(thinker_mb(system))
            time.sleep(LOOK_S)
    return job["result"]["text"], time.monotonic() - began, memory


def thinker_mb(system: System) -> float:
    pid = system.pid("thinker")
    return sum(resident_mb(each) for each in (pid, *children(pid)))


if __name__ == "__main__":
    main()
