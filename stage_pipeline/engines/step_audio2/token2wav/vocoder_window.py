"""One window of many streams through the vocoder: overlap with the one before, cross-fade, tails."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stage_pipeline.engines.step_audio2.token2wav.harmonic_source import HOP
from stage_pipeline.engines.step_audio2.token2wav.hift import HiFT
from stage_pipeline.engines.step_audio2.token2wav.stream_slots import MEL_OVERLAP, WAVE_OVERLAP, StreamSlots


class VocoderWindows:
    """Runs windows over the slots of ``StreamSlots``. A stream's window is its last 8 mel frames and the
    new ones; the first has the new ones only."""

    def __init__(self, vocoder: HiFT, slots: StreamSlots) -> None:
        self._vocoder = vocoder
        self._slots = slots
        # The official window is not normalised: its halves add up to 1.08.
        window = torch.from_numpy(np.hamming(2 * WAVE_OVERLAP).astype(np.float32)).to(
            slots.speech_tails.device
        )
        self._rise, self._fall = window[:WAVE_OVERLAP], window[WAVE_OVERLAP:]

    def frames(self, new_frames: int) -> int:
        """Frames of a pass over windows of ``new_frames``."""
        return MEL_OVERLAP + new_frames

    def run(self, mel: Tensor, places: Tensor, noise: Tensor, *, full: bool) -> Tensor:
        """``mel`` ``[rows, new, mels]``, ``places`` int64 ``[rows, 3]`` (slot, 1 for a first window, new
        frames that are real), ``noise`` ``[rows, 480 * (8 + new), 9]`` to samples ``[rows, 480 * (8 +
        new)]``.

        ``full``: no row is a first window or shorter than ``new``, so no masks are needed.
        """
        slots, vocoder = self._slots, self._vocoder
        slot, first, new = places.unbind(1)
        goes_on = first[:, None] == 0
        mel = torch.cat([slots.mel_tails[slot], mel], dim=1)
        frames = None
        ends = mel.new_full(slot.shape, mel.shape[1], dtype=torch.int64)
        if not full:
            mel = _rows(mel, first * MEL_OVERLAP, mel.shape[1])
            frames = ends = new + (1 - first) * MEL_OVERLAP
        source = vocoder.source(mel, noise, frames)
        joined = torch.where(goes_on, slots.source_tails[slot], source[:, :WAVE_OVERLAP])
        source = torch.cat([joined, source[:, WAVE_OVERLAP:]], dim=1)
        wave = vocoder.decode(mel, source, frames)
        faded = wave[:, :WAVE_OVERLAP] * self._rise + slots.speech_tails[slot] * self._fall
        head = torch.where(goes_on, faded, wave[:, :WAVE_OVERLAP])
        wave = torch.cat([head, wave[:, WAVE_OVERLAP:]], dim=1)
        slots.mel_tails[slot] = _rows(mel, ends - MEL_OVERLAP, MEL_OVERLAP)
        slots.source_tails[slot] = _rows(source[..., None], ends * HOP - WAVE_OVERLAP, WAVE_OVERLAP)[..., 0]
        slots.speech_tails[slot] = _rows(wave[..., None], ends * HOP - WAVE_OVERLAP, WAVE_OVERLAP)[..., 0]
        return wave


def _rows(x: Tensor, start: Tensor, count: int) -> Tensor:
    """``count`` rows of each ``[rows, time, channels]`` item from its own start; past an edge, the edge."""
    rows = (start[:, None] + torch.arange(count, device=x.device)).clamp(0, x.shape[1] - 1)
    return x.gather(1, rows[:, :, None].expand(-1, -1, x.shape[2]))
