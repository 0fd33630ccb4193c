"""What vLLM does with an audio before the model: pieces, log-mels, ``<audio_patch>`` tokens in the prompt.

In a prompt, one ``<audio_patch>`` stands for each audio: a 16 kHz float32 wave of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import BatchFeature
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems
from vllm.multimodal.parse import AudioProcessorItems, MultiModalDataItems, MultiModalDataParser
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
    PromptUpdate,
    PromptUpdateDetails,
)

from stage_pipeline.engines.step_audio2.spectra import TOKENIZER_RATE_HZ
from stage_pipeline.engines.step_audio2.thinker.audio_pieces import (
    PIECE_SAMPLES,
    mel_frames,
    patches,
    piece_mel,
    pieces,
    prompt_ids,
    together,
)
from stage_pipeline.engines.step_audio2.thinker.vocabulary import AUDIO_END, AUDIO_PATCH, AUDIO_START


class StepAudio2ProcessingInfo(BaseProcessingInfo):
    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"audio": None}

    def get_mm_max_tokens_per_item(
        self, seq_len: int, mm_counts: Mapping[str, int] | None = None
    ) -> Mapping[str, int]:
        """Of an audio of one piece: what memory is laid out for. Longer ones go through as far as
        ``max_num_batched_tokens`` allows, as vLLM checks for each."""
        return {"audio": patches(mel_frames(PIECE_SAMPLES))}

    def get_data_parser(self) -> MultiModalDataParser:
        return MultiModalDataParser(target_sr=TOKENIZER_RATE_HZ, target_channels=1)


class StepAudio2DummyInputs(BaseDummyInputsBuilder[StepAudio2ProcessingInfo]):
    """The largest input, for vLLM to measure memory with."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return AUDIO_PATCH * mm_counts.get("audio", 0)

    def get_dummy_mm_data(
        self,
        seq_len: int,
        mm_counts: Mapping[str, int],
        mm_options: Mapping[str, Any],
    ) -> dict[str, Any]:
        silence = np.zeros(PIECE_SAMPLES, np.float32)
        return {"audio": [silence] * mm_counts.get("audio", 0)}


class StepAudio2Processor(BaseMultiModalProcessor[StepAudio2ProcessingInfo]):
    def _apply_hf_processor_main(
        self,
        mm_items: MultiModalDataItems,
        prompt: str | list[int] | None = None,
        **_: object,
    ) -> BatchFeature | tuple[list[int], BatchFeature, bool]:
        """Where vLLM would call a processor of transformers. Before 0.29 it gives the prompt too, and wants
        its ids back and whether they are expanded already."""
        mels, frames = [], []
        for wave in _waves(mm_items):
            cut = [piece_mel(piece) for piece in pieces(torch.as_tensor(wave, dtype=torch.float32))]
            mels.append(together(cut))
            frames.append(torch.tensor([mel.shape[1] for mel in cut]))
        features = BatchFeature({"mels": mels, "frames": frames} if mels else {})
        if prompt is None:
            return features
        if isinstance(prompt, str):
            prompt = self.info.get_tokenizer().encode(prompt, add_special_tokens=False)
        return prompt, features, False

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {
            "mels": MultiModalFieldConfig.batched("audio"),
            "frames": MultiModalFieldConfig.batched("audio", keep_on_cpu=True),
        }

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, object],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        vocabulary = self.info.get_tokenizer().get_vocab()
        start, patch, end = (vocabulary[token] for token in (AUDIO_START, AUDIO_PATCH, AUDIO_END))
        lengths = [len(wave) for wave in _waves(mm_items)]

        def in_prompt(item: int) -> PromptUpdateDetails[list[int]]:
            return PromptUpdateDetails.select_token_id(prompt_ids(lengths[item], start, patch, end), patch)

        return [PromptReplacement(modality="audio", target=[patch], replacement=in_prompt)]


def _waves(items: MultiModalDataItems) -> list[Any]:
    if "audio" not in items:
        return []
    return items.get_items("audio", AudioProcessorItems).get_all()
