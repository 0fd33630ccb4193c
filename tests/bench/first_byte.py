"""Time to the first byte of audio: OpenAI's speech path against a job and its live audio, in one run.

    python -m tests.bench.first_byte [--rounds 40] [--noop]

Both ways speak the same text and are asked in turn, each on a connection that is open, so that what is
compared is the server's work: one POST that streams, or one that makes a job and a GET that listens to it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import httpx

from tests.bench.whole_system import EVERYTHING, report, whole_system
from workers.settings import Settings

TEXT = "Good morning. The train to the coast leaves at nine, and the ferry waits for it."
NOOP_TEXT = "tokens=75 delay_ms=2"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--noop", action="store_true", help="an engine that does nothing: the paths alone")
    chosen = parser.parse_args()
    if chosen.noop:
        measure(None, NOOP_TEXT, chosen.rounds)
    else:
        measure(Settings().config[0], TEXT, chosen.rounds)


def measure(config: Path | None, text: str, rounds: int) -> None:
    with whole_system(config) as system:
        system.backend.objects.ensure_bucket()
        system.start(*EVERYTHING)
        with httpx.Client(base_url=system.url, timeout=60) as client:
            for _ in range(3):
                speech(client, text)
                job(client, text)
            streamed, listened = [], []
            for number in range(rounds):
                ways = [(speech, streamed), (job, listened)]
                for way, times in ways if number % 2 else reversed(ways):
                    times.append(way(client, text))
    report("first byte through /v1/audio/speech", streamed)
    report("first byte of a job's live audio", listened)
    apart = sorted(one - other for one, other in zip(streamed, listened, strict=True))
    middle_ms = 1000 * apart[len(apart) // 2]
    print(f"{'speech later than the job by, median of the pairs':50} {middle_ms:.1f} ms")


def speech(client: httpx.Client, text: str) -> float:
    """Seconds from the POST to the first byte of audio."""
    body = {"input": text, "stream": True, "response_format": "pcm"}
    began = time.monotonic()
    with client.stream("POST", "/v1/audio/speech", json=body) as answer:
        return first_of(answer, began)


def job(client: httpx.Client, text: str) -> float:
    body = {"type": "tts", "text": text, "live": True, "response_format": "pcm"}
    began = time.monotonic()
    made = client.post("/v1/jobs", json=body).raise_for_status().json()
    with client.stream("GET", f"/v1/jobs/{made['id']}/audio") as answer:
        return first_of(answer, began)


def first_of(answer: httpx.Response, began: float) -> float:
    answer.raise_for_status()
    blocks = answer.iter_raw()
    next(block for block in blocks if block)
    first_s = time.monotonic() - began
    for _ in blocks:
        pass  # to the end, so that no round runs beside the one before
    return first_s


if __name__ == "__main__":
    main()
