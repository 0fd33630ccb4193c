"""A running deploy under load, as its clients see it.

    stagewave up --config configs/step_audio_2.yaml --model-dir MODEL &
    python -m tests.bench.load [--levels 1,8,32,64] [--tokens 250] [--beside LINES] [--out OUT.json]

At each level so many clients post TTS jobs one after the other. First with a listener: the time from POST
to the first byte of live audio (TTFP), to the end of the audio (E2E), and seconds of audio a second. Then
without one: seconds of audio a second of whole utterances. With STAGEWAVE_REDIS_URL set, also the time
from POST until the first window of 28 tokens is in the channel between the stages. With ``--beside``
instead: what one client with a listener sees alone, and beside a batch of so many whole utterances.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from workers.backend import connect_backend
from workers.settings import load_settings
from workers.token_channel import TokenChannel

FIRST_WINDOW = 28
TEXT = "The quick brown fox jumps over the lazy dog, and job {number} says so once again in other words."


@dataclass(frozen=True, slots=True)
class Heard:
    """What one client saw of a job; seconds since its POST."""

    audio_s: float
    e2e_s: float
    ttfp_s: float | None = None
    window_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--levels", default="1,8,32,64")
    parser.add_argument("--tokens", type=int, default=250, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each client")
    parser.add_argument("--beside", type=int, metavar="LINES")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    tokens = token_channel()
    rows: list[dict[str, float | str]] = []
    if arguments.beside:
        client = Client(arguments.url, arguments.tokens, True, tokens)
        rows = beside(client, arguments.rounds, arguments.beside)
        if arguments.out:
            arguments.out.write_text(json.dumps(rows, indent=1))
        return
    for level in map(int, arguments.levels.split(",")):
        for live in (True, False):
            client = Client(arguments.url, arguments.tokens, live, tokens)
            client.round(level, 1)
            began = time.perf_counter()
            heard = client.round(level, arguments.rounds)
            rows.append(row(level, live, heard, time.perf_counter() - began))
            print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(rows, indent=1))


def beside(client: Client, rounds: int, lines: int) -> list[dict[str, float | str]]:
    rows = []
    client.round(1, 2)
    for name, going in (("alone", False), ("beside a batch", True), ("alone again", False)):
        batch = client.start_batch(lines) if going else None
        heard = client.round(1, rounds)
        shown = {"beside": name, **row(1, True, heard, sum(one.e2e_s for one in heard))}
        if batch is not None:
            shown["batch_lines_per_s"] = client.stop_batch(batch)
        rows.append(shown)
        print("  ".join(f"{name} {value}" for name, value in shown.items()), flush=True)
    return rows


def token_channel() -> TokenChannel | None:
    if "STAGEWAVE_REDIS_URL" not in os.environ:
        return None
    return connect_backend(load_settings(os.environ)).tokens


class Client:
    """Posts jobs and waits for their audio."""

    def __init__(self, url: str, tokens: int, live: bool, channel: TokenChannel | None) -> None:
        self._http = httpx.Client(
            base_url=url,
            timeout=120,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )
        self._live = live
        self._channel = channel
        self._body = {
            "type": "tts",
            "live": live,
            "mode": "async_chunk" if live else "sequential",
            "response_format": "pcm",
            "sampling_params_list": [{"min_tokens": tokens, "max_tokens": tokens}],
        }

    def round(self, level: int, rounds: int) -> list[Heard]:
        """``level`` clients at a time, ``rounds`` jobs each."""
        with ThreadPoolExecutor(level) as clients:
            return list(clients.map(self._speak, range(level * rounds)))

    def start_batch(self, lines: int) -> str:
        """Of whole utterances; returns its id once it has come into its stride."""
        body = {name: value for name, value in self._body.items() if name not in ("live", "mode")}
        each = [json.dumps({**body, "text": TEXT.format(number=number)}) for number in range(lines)]
        sent = self._http.post("/v1/batches", files={"file": ("lines.jsonl", "\n".join(each).encode())})
        batch_id = str(sent.raise_for_status().json()["id"])
        while self._batch(batch_id)["counts"]["succeeded"] < lines // 10:
            time.sleep(0.1)
        return batch_id

    def stop_batch(self, batch_id: str) -> float:
        """The lines a second that it last came to; what is left of it is canceled."""
        batch = self._batch(batch_id)
        assert batch["status"] == "in_progress", "the batch ended too soon"
        self._http.post(f"/v1/batches/{batch_id}/cancel").raise_for_status()
        while self._batch(batch_id)["status"] != "cancelled":
            time.sleep(0.1)
        return float(batch["rate_per_s"])

    def _batch(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/v1/batches/{batch_id}").raise_for_status().json()
        assert found["status"] not in ("failed", "completed"), found
        return found

    def _speak(self, number: int) -> Heard:
        began = time.perf_counter()
        body = {**self._body, "text": TEXT.format(number=number), "seed": 1000 + number}
        job = self._http.post("/v1/jobs", json=body).raise_for_status().json()
        window_s: list[float] = []
        watcher = threading.Thread(target=lambda: window_s.append(self._first_window(job["id"], began)))
        if self._live and self._channel is not None:
            watcher.start()
        ttfp_s = None
        if self._live:
            with self._http.stream("GET", f"/v1/jobs/{job['id']}/audio") as answer:
                for _ in answer.iter_bytes():
                    ttfp_s = ttfp_s or time.perf_counter() - began
        heard_s = time.perf_counter() - began
        while (done := self._http.get(f"/v1/jobs/{job['id']}?wait=60").json())["status"] != "succeeded":
            assert done["status"] in ("queued", "running"), done
        e2e_s = heard_s if self._live else time.perf_counter() - began
        if watcher.ident is not None:
            watcher.join()
        return Heard(done["usage"]["audio_out_s"], e2e_s, ttfp_s, window_s[0] if window_s else None)

    def _first_window(self, job_id: str, began: float) -> float:
        assert self._channel is not None
        seen = 0
        for chunk in self._channel.follow(job_id):
            seen += len(chunk.tokens) if chunk is not None else 0
            if seen >= FIRST_WINDOW:
                break
        return time.perf_counter() - began


def row(level: int, live: bool, heard: list[Heard], wall_s: float) -> dict[str, float | str]:
    found: dict[str, float | str] = {"clients": level, "mode": "live" if live else "whole"}
    found["audio_s_per_s"] = round(sum(one.audio_s for one in heard) / wall_s, 1)
    found["rtf_p50"] = round(statistics.median(one.e2e_s / one.audio_s for one in heard), 4)
    found |= spread("e2e_ms", [one.e2e_s for one in heard])
    found |= spread("ttfp_ms", [one.ttfp_s for one in heard if one.ttfp_s is not None])
    found |= spread("window_ms", [one.window_s for one in heard if one.window_s is not None])
    return found


def spread(name: str, values_s: list[float]) -> dict[str, float | str]:
    """The median and the 95th percentile, in milliseconds; nothing of nothing."""
    if not values_s:
        return {}
    ordered = sorted(values_s)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {f"{name}_p50": round(statistics.median(ordered) * 1000, 1), f"{name}_p95": round(p95 * 1000, 1)}


if __name__ == "__main__":
    main()
