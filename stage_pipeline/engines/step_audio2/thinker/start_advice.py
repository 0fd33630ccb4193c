"""What to change in a deploy when vLLM does not start: it says why in its log, and in its own words."""

from __future__ import annotations

_ADVICE = (
    (
        ("failed to infer device type", "no cuda gpus are available", "found no nvidia driver"),
        "stages.0.devices: there is no GPU that vLLM could use",
    ),
    (
        ("free memory on device", "available memory on node"),
        "stages.0.gpu_memory_utilization: more is asked for than is free: lower it, or end "
        "what else uses the device",
    ),
    (
        ("no available memory for the cache", "kv cache is needed", "kv cache memory"),
        "stages.0.max_model_len: the cache for one answer of that length does not fit: lower it, or raise "
        "stages.0.gpu_memory_utilization",
    ),
    (
        ("outofmemory", "out of memory"),
        "stages.0: the GPU's memory is too small for the model: name more GPUs in devices with "
        "tensor_parallel_size, or lower max_num_seqs, max_model_len and max_num_batched_tokens",
    ),
    (
        ("max_num_batched_tokens",),
        "stages.0.max_num_batched_tokens: too small for the longest piece of audio or for max_model_len",
    ),
    (
        ("max_model_len", "maximum model length"),
        "stages.0.max_model_len: the model does not go that far: lower it",
    ),
    (
        ("tensor parallel size", "tensor_parallel_size", "divisible by"),
        "stages.0.tensor_parallel_size: the model cannot be divided so, or there are fewer GPUs",
    ),
    (
        ("filenotfounderror", "no such file", "cannot find any model weights", "safetensor"),
        "model_dir: files of the model are missing or broken",
    ),
)
"""What vLLM says, in small letters, and what to do about it; the first that is said counts."""


def start_advice(said: str) -> str:
    """The message for who started it, from the errors of vLLM's processes, the first cause first."""
    lowered = said.lower()
    for signs, advice in _ADVICE:
        if any(sign in lowered for sign in signs):
            return advice
    last = said.strip().splitlines()[0] if said.strip() else "nothing was said"
    return f"the Thinker's engine did not start ({last[:300]}): the log says more"
