"""Step-Audio2's Thinker as a vLLM model: our audio tower before vLLM's own Qwen2.

The language model is split over GPUs as vLLM splits any Qwen2; the audio tower, a twelfth of the weights,
is whole on each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces import SupportsMultiModal, SupportsPP
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    WeightsMapper,
    init_vllm_registered_model,
    maybe_prefix,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.sequence import IntermediateTensors

from stage_pipeline.engines.step_audio2.thinker.audio_tower import Adapter, Encoder, TowerSize, hear
from stage_pipeline.engines.step_audio2.thinker.vllm_config import StepAudio2EncoderConfig
from stage_pipeline.engines.step_audio2.thinker.vllm_processor import (
    StepAudio2DummyInputs,
    StepAudio2ProcessingInfo,
    StepAudio2Processor,
)
from stage_pipeline.engines.step_audio2.thinker.vocabulary import AUDIO_PATCH


@MULTIMODAL_REGISTRY.register_processor(
    StepAudio2Processor, info=StepAudio2ProcessingInfo, dummy_inputs=StepAudio2DummyInputs
)
class StepAudio2ForCausalLM(nn.Module, SupportsMultiModal, SupportsPP):
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={"model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
    )
    packed_modules_mapping = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        return AUDIO_PATCH

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.config = config
        size = _tower_size(config.audio_encoder_config, config.text_config.hidden_size)
        with self._mark_tower_model(vllm_config, "audio"):
            self.encoder = Encoder(size)
            self.adapter = Adapter(size)
        with self._mark_language_model(vllm_config):
            self.language_model = init_vllm_registered_model(
                vllm_config=vllm_config,
                hf_config=config.text_config,
                prefix=maybe_prefix(prefix, "language_model"),
                architectures=["Qwen2ForCausalLM"],
            )
        self.make_empty_intermediate_tensors = self.language_model.make_empty_intermediate_tensors

    def embed_multimodal(self, **features: Any) -> list[Tensor]:  # noqa: ANN401 -- vLLM's signature
        """For each audio ``[patches, hidden]``. Takes ``mels``, for each ``[pieces, 128, padded]``, and
        ``frames``, for each ``[pieces]``; both as a list, or stacked where all are alike."""
        if "mels" not in features:
            return []
        requests = [
            (mels, frames.tolist())
            for mels, frames in zip(features["mels"], features["frames"], strict=True)
        ]
        return hear(self.encoder, self.adapter, requests)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
        **_: object,
    ) -> Tensor | IntermediateTensors:
        if intermediate_tensors is not None:
            inputs_embeds = None
        return self.language_model.model(
            input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds
        )

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        return self.language_model.compute_logits(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        return AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)


def _tower_size(audio: StepAudio2EncoderConfig, hidden: int) -> TowerSize:
    return TowerSize(
        mels=audio.n_mels,
        context=audio.n_audio_ctx,
        width=audio.n_audio_state,
        heads=audio.n_audio_head,
        layers=audio.n_audio_layer,
        output=hidden,
        adapter_kernel=audio.kernel_size,
        adapter_stride=audio.adapter_stride,
    )
