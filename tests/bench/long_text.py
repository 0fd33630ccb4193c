"""A book chapter through the whole system: when its first sound comes, and whether its last word does.

    python -m tests.bench.long_text [--chars 100000]

Prints the first audio at a live listener of one sentence and of the chapter, how fast the chapter was
spoken, Token2Wav's resident memory, and what is heard in its last seconds.
"""

from __future__ import annotations

import argparse
import io
import time

import httpx
import soundfile

from stage_pipeline.audio.decode import decode_audio
from stage_pipeline.deploy import load_deploy
from stage_pipeline.engines.load import load_thinker
from stage_pipeline.stages import GenerateRequest, Task
from tests.bench.speech import PARAGRAPH, children, resident_mb
from tests.bench.whole_system import EVERYTHING, whole_system
from tests.integration.conftest import System
from workers.settings import Settings

LAST = "And so the old clock in the harbour struck twelve for the very last time."
TAIL_S = 12


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chars", type=int, default=100_000)
    chars = parser.parse_args().chars
    chapter = f"{PARAGRAPH}\n\n" * (chars // len(PARAGRAPH)) + LAST
    settings = Settings()
    with whole_system(settings.config[0]) as system:
        system.backend.objects.ensure_bucket()
        system.start(*EVERYTHING)
        for name, text in (("one sentence, cold", LAST), ("one sentence", LAST), ("the chapter", chapter)):
            first_s, took_s, wave, rate_hz = spoken(system, text)
            audio_s = len(wave) / rate_hz
            print(
                f"{name}: {len(text)} characters, first audio {1000 * first_s:.0f} ms, {audio_s:.0f} s of"
                f" audio in {took_s:.1f} s: RTF {took_s / audio_s:.3f}",
                flush=True,
            )
        pid = system.pid("token2wav")
        print(f"Token2Wav's memory: {sum(resident_mb(each) for each in (pid, *children(pid))):.0f} MB")
        tail = io.BytesIO()
        soundfile.write(tail, wave[-TAIL_S * rate_hz :], rate_hz, format="WAV")
        thinker = load_thinker(load_deploy(settings.config[0]), system.settings.home / "cache")
        heard = decode_audio(tail).wave
        deltas = thinker.generate(GenerateRequest("tail", Task.ASR, audio=heard, language="en"))
        print("its last seconds:", "".join(delta.text for delta in deltas))


def spoken(system: System, text: str) -> tuple[float, float, object, int]:
    """Seconds to the first sample at a listener and to the end, and the samples."""
    body = {"type": "tts", "text": text, "live": True}
    with httpx.Client(base_url=system.url, timeout=300) as client:
        began = time.monotonic()
        url = f"/v1/jobs/{client.post('/v1/jobs', json=body).raise_for_status().json()['id']}"
        first_s = 0.0
        with client.stream("GET", f"{url}/audio") as answer:
            for block in answer.iter_bytes():
                if len(block) > 44:
                    first_s = first_s or time.monotonic() - began
        while (job := client.get(f"{url}?wait=60").json())["status"] != "succeeded":
            assert job["status"] in ("queued", "running"), job
        took_s = time.monotonic() - began
        wave, rate_hz = soundfile.read(io.BytesIO(client.get(f"{url}/audio").content), dtype="int16")
    return first_s, took_s, wave, rate_hz


if __name__ == "__main__":
    main()
