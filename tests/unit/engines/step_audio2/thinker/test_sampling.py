"""Which sampling parameters count, and how long an answer may get."""

from __future__ import annotations

import numpy as np
import pytest

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.step_audio2.thinker.sampling import (
    deploy_sampling,
    longest_codes,
    request_sampling,
)
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import GenerateRequest, Task

OMNI = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": -1,
    "max_tokens": 1024,
    "seed": 42,
    "detokenize": True,
    "repetition_penalty": 1.05,
    "stop_token_ids": [151665],
}
"""As vLLM-Omni's deploy file has it."""


def speak(**options) -> GenerateRequest:
    return GenerateRequest("r", Task.TTS, **{"text": "Hi", **options})


def test_unasked_the_documented_defaults_count():
    made = request_sampling(speak(), deploy_sampling({}))
    assert (made.temperature, made.top_p, made.top_k) == (0.7, 0.9, -1)
    assert (made.max_tokens, made.seed, made.repetition_penalty) == (1024, 42, 1.1)


def test_text_is_repeated_a_little_more_freely_than_audio():
    request = GenerateRequest("r", Task.ASR, audio=np.zeros(1, np.float32))
    assert request_sampling(request, deploy_sampling({})).repetition_penalty == 1.05


def test_a_request_says_over_the_deploy_and_the_deploy_over_the_defaults():
    deploy = deploy_sampling(OMNI | {"temperature": 0.2, "top_p": 0.5})
    made = request_sampling(speak(sampling={"top_p": 0.4, "max_tokens": 7}), deploy)
    assert (made.temperature, made.top_p, made.max_tokens) == (0.2, 0.4, 7)
    assert (made.repetition_penalty, made.stop_token_ids) == (1.05, (151665,))


@pytest.mark.parametrize(
    ("deploy", "request_", "seed"),
    [
        ({}, {}, 42),
        ({"seed": 7}, {}, 7),
        ({"seed": 7}, {"seed": 9}, 9),
        ({}, {"seed": 9, "sampling": {"seed": 3}}, 3),
    ],
)
def test_the_seed_is_the_request_s_own_if_it_has_one(deploy, request_, seed):
    assert request_sampling(speak(**request_), deploy_sampling(deploy)).seed == seed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("repetition_penalty", 0),
        ("temprature", 1),
        ("seed", True),
    ],
)
def test_a_value_that_cannot_be_is_named(name, value):
    with pytest.raises(DeployError, match=f"stages.0.default_sampling_params.{name}: "):
        deploy_sampling({name: value})
    with pytest.raises(StagewaveError) as refused:
        request_sampling(speak(sampling={name: value}), deploy_sampling({}))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.field == f"sampling_params_list.0.{name}"


def test_stop_tokens_are_a_list_of_ids():
    with pytest.raises(DeployError, match=r"default_sampling_params\.stop_token_ids"):
        deploy_sampling({"stop_token_ids": ["<|EOT|>"]})


@pytest.mark.parametrize(
    ("text", "least_s", "most_s"),
    [
        ("Hi", 3, 4),
        ("The quick brown fox jumps over the lazy dog.", 8, 12),
        ("今天天气很好。", 6, 9),
        ("15072", 6, 7),
    ],
)
def test_audio_may_take_what_slow_speech_takes(text, least_s, most_s):
    assert least_s <= longest_codes(speak(text=text), 60) / 25 <= most_s


def test_a_translation_may_take_three_times_what_was_heard_but_no_more_than_the_deploy_allows():
    request = GenerateRequest("r", Task.S2ST, audio=np.zeros(160_000, np.float32))
    assert longest_codes(request, 60) == (5 + 3 * 10) * 25
    assert longest_codes(request, 4) == 100
