"""The public implementation, measured on the same weights: PyPI ``step-audio2`` 1.0.0 (and what it
imports).

Not a dependency of this project. Install it beside it (``pip install step-audio2 hyperpyyaml
s3tokenizer`` in an environment of its own with the same torch), and run ``tests.bench.token2wav --rival``
there. It voices one stream at a time: two on one model would share their caches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

_OVERLAP_FRAMES, _OVERLAP_SAMPLES = 8, 3840


@torch.inference_mode()
def measure(model: Path, device: str, tokens: tuple[int, ...], row: Callable[..., None]) -> None:
    """First chunk, streaming and whole, of one stream: what it does for many is one after the other."""
    from flashcosyvoice.modules.hifigan import HiFTGenerator
    from hyperpyyaml import load_hyperpyyaml

    folder = model / "token2wav"
    with (folder / "flow.yaml").open(encoding="utf-8") as file:
        flow = load_hyperpyyaml(file)["flow"]
    flow.load_state_dict(torch.load(folder / "flow.pt", weights_only=True), strict=True)
    vocoder = HiFTGenerator()
    stored = torch.load(folder / "hift.pt", weights_only=True)
    vocoder.load_state_dict({name.removeprefix("generator."): tensor for name, tensor in stored.items()})
    rival = Rival(flow.to(device).eval(), vocoder.to(device).eval(), device)
    audio_s = 0.04 * len(tokens)
    for _ in range(2):  # the second is warm
        firsts, streaming, whole = [], [], []
        for _ in range(3):
            started = time.perf_counter()
            firsts.append(rival.stream(tokens))
            streaming.append(time.perf_counter() - started)
            started = time.perf_counter()
            rival.whole(tokens)
            whole.append(time.perf_counter() - started)
    row("rival/first_chunk", p50_ms=1e3 * statistics.median(firsts))
    for name, taken in (("streaming", streaming), ("whole", whole)):
        middle = statistics.median(taken)
        row(f"rival/{name}", rtf=middle / audio_s, ms=1e3 * middle, audio_s_per_s=audio_s / middle)


class Rival:
    def __init__(self, flow: torch.nn.Module, vocoder: torch.nn.Module, device: str) -> None:
        self._flow, self._vocoder, self._device = flow, vocoder, device
        draw = torch.Generator().manual_seed(1)
        # As long as the prompt of a made checkpoint: 6 s.
        self._prompt = torch.randint(0, 6561, (1, 150), generator=draw, dtype=torch.int32).to(device)
        self._mel = torch.randn(1, 300, 80, generator=draw).to(device)
        self._speaker = torch.randn(1, 192, generator=draw).to(device)
        self._window = torch.hamming_window(2 * _OVERLAP_SAMPLES, periodic=False, device=device)

    def stream(self, tokens: tuple[int, ...]) -> float:
        """Set-up counts: every stream of it needs its own. The seconds until the first piece."""
        started, first = time.perf_counter(), 0.0
        ids = torch.cat([self._prompt, self._prompt[:, :3]], dim=1)
        cache = self._flow.setup_cache(ids, self._mel, self._speaker, n_timesteps=10)
        mel_tail = source = speech = None
        for start in range(0, len(tokens), 25):
            last = start + 28 > len(tokens)
            fed = torch.tensor(
                [tokens[start:] if last else tokens[start : start + 28]], device=self._device
            )
            mel, cache = self._flow.inference_chunk(
                token=fed.int(), spk=self._speaker, cache=cache, last_chunk=last, n_timesteps=10
            )
            keys = cache["estimator_att_cache"]
            prompt = self._mel.shape[1]
            if keys.shape[4] > prompt + 100:
                kept = torch.cat([keys[:, :, :, :, :prompt], keys[:, :, :, :, -100:]], dim=4)
                cache["estimator_att_cache"] = kept
            mel, speech_tail = (
                mel.float() if mel_tail is None else torch.cat([mel_tail, mel.float()], 2),
                speech,
            )
            held = torch.zeros(1, 1, 0, device=self._device) if source is None else source
            wave, source = self._vocoder(mel, held)
            if speech_tail is not None:
                rise, fall = self._window.split(_OVERLAP_SAMPLES)
                head = wave[:, :_OVERLAP_SAMPLES] * rise + speech_tail * fall
                wave = torch.cat([head, wave[:, _OVERLAP_SAMPLES:]], dim=1)
            mel_tail, source = mel[:, :, -_OVERLAP_FRAMES:], source[:, :, -_OVERLAP_SAMPLES:]
            speech = wave[:, -_OVERLAP_SAMPLES:]
            wave.cpu()
            first = first or time.perf_counter() - started
            if last:
                break
        return first

    def whole(self, tokens: tuple[int, ...]) -> Tensor:
        def length(count: int) -> Tensor:
            return torch.tensor([count], dtype=torch.int32, device=self._device)

        ids = torch.tensor([tokens], dtype=torch.int32, device=self._device)
        prompt, mel = self._prompt, self._mel
        made = self._flow.inference(
            ids,
            length(len(tokens)),
            prompt,
            length(prompt.shape[1]),
            mel,
            length(mel.shape[1]),
            self._speaker,
            10,
        )
        wave, _ = self._vocoder(made.float())
        return wave.cpu()
