"""What vLLM says when it does not start, as it stands in its logs, and what is made of it."""

from __future__ import annotations

import pytest

from stage_pipeline.engines.step_audio2.thinker.start_advice import start_advice

WRAPPED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (
            "ValueError: Free memory on device cuda:0 (9.1/139.8 GiB) on startup is less than desired GPU "
            "memory utilization (0.9, 125.8 GiB). Decrease GPU memory utilization or reduce GPU memory "
            "used by other processes.",
            "stages.0.gpu_memory_utilization: more is asked for",
        ),
        (
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 0 has a total",
            "stages.0: the GPU's memory is too small",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "stages.0.max_model_len: the cache",
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (16384), (0.88 GiB KV "
            "cache is needed, which is larger than the available KV cache memory (0.5 GiB).",
            "stages.0.max_model_len: the cache",
        ),
        (
            "ValidationError: User-specified max_model_len (99999) is greater than the derived max_"
            "model_len (max_position_embeddings=16384)",
            "stages.0.max_model_len: the model does not",
        ),
        (
            "ValueError: max_num_batched_tokens (100) is smaller than max_model_len (2048).",
            "stages.0.max_num_batched_tokens:",
        ),
        (
            "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size 3.",
            "stages.0.tensor_parallel_size:",
        ),
        ("RuntimeError: Cannot find any model weights with `model`", "model_dir:"),
        ("RuntimeError: Failed to infer device type, please set", "stages.0.devices:"),
    ],
)
def test_the_key_to_change_is_named(said, key):
    assert start_advice(f"{said}\n{WRAPPED}").startswith(key)


def test_what_nobody_expected_is_told_as_it_is():
    assert "(KeyError: 'rope_theta')" in start_advice(f"KeyError: 'rope_theta'\n{WRAPPED}")
