"""``config.json`` of Step-Audio2 as transformers reads it, so that no code from the checkpoint is run."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PretrainedConfig, Qwen2Config

MODEL_TYPE = "step_audio_2"


class StepAudio2EncoderConfig(PretrainedConfig):
    model_type = "step_audio_2_encoder"


class StepAudio2Config(PretrainedConfig):
    model_type = MODEL_TYPE
    sub_configs = {"text_config": Qwen2Config, "audio_encoder_config": StepAudio2EncoderConfig}

    def __init__(
        self,
        # What config.json holds is any JSON; once read, they are configs.
        text_config: Any = None,  # noqa: ANN401
        audio_encoder_config: Any = None,  # noqa: ANN401
        **others: Any,  # noqa: ANN401
    ) -> None:
        if isinstance(text_config, PretrainedConfig):
            text_config = text_config.to_dict()
        if isinstance(audio_encoder_config, PretrainedConfig):
            audio_encoder_config = audio_encoder_config.to_dict()
        text = dict(text_config or {})
        # Qwen2's name for it, and Step's.
        if (groups := text.pop("num_attention_groups", None)) is not None:
            text.setdefault("num_key_value_heads", groups)
        self.text_config = Qwen2Config(**text)
        self.audio_encoder_config = StepAudio2EncoderConfig(**(audio_encoder_config or {}))
        super().__init__(**others)


def register() -> None:
    """May be called again."""
    AutoConfig.register(MODEL_TYPE, StepAudio2Config, exist_ok=True)
