"""The random checkpoint's tokenizer: a token a byte, and the special tokens under their real numbers. And
the whole Thinker on a real vLLM engine, one for all tests here."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="session")
def tokenizer():
    from tokenizers import Tokenizer

    from stage_pipeline.engines.step_audio2.thinker.random_checkpoint import tokenizer_json

    return Tokenizer.from_str(json.dumps(tokenizer_json()))


@pytest.fixture(scope="session")
def vocabulary(tokenizer):
    from stage_pipeline.engines.step_audio2.thinker.vocabulary import Vocabulary

    return Vocabulary(tokenizer)


@pytest.fixture(scope="package")
def thinker(tiny_checkpoint):
    """``test_engine`` kills it at its end."""
    from stage_pipeline.engines.step_audio2.thinker.engine import StepAudio2Thinker
    from stage_pipeline.engines.step_audio2.thinker.engine_host import HostOptions

    options = HostOptions(
        tiny_checkpoint, 16, enforce_eager=True, max_model_len=1024, max_num_batched_tokens=1024
    )
    made = StepAudio2Thinker(options, dialect="official", audio_out_s=40, sampling={"temperature": 0})
    made.warm_up()
    yield made
    made.close()
