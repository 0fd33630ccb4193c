"""The tiny checkpoint of tests/goldens, and what the official implementation computes with it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

# Torch is an extra: where it is not installed there is nothing here to test.
if importlib.util.find_spec("torch") is None or importlib.util.find_spec("safetensors") is None:
    collect_ignore_glob = ["*"]
else:
    import torch

    torch.set_num_threads(1)

GOLDENS = Path(__file__).parents[3] / "goldens"


@pytest.fixture(scope="session")
def goldens() -> Path:
    return GOLDENS


@pytest.fixture(scope="session")
def golden():
    """``golden("flow", "mu_20")``: one stored tensor."""
    from safetensors.torch import load_file

    files = {}

    def tensor(file: str, name: str):
        if file not in files:
            files[file] = load_file(GOLDENS / f"{file}.safetensors")
        return files[file][name]

    return tensor


@pytest.fixture(scope="session")
def cases():
    return json.loads((GOLDENS / "flow_cases.json").read_text("utf-8"))["plan"]


@pytest.fixture(scope="session")
def golden_noise(golden):
    """The noise that was put into the official implementation."""
    import numpy as np

    from stage_pipeline.engines.step_audio2.token2wav.noise import Noise

    class GoldenNoise(Noise):
        def flow(self, mels):
            return golden("flow_noise", "rand_noise")[0].T.contiguous()

        def harmonics(self, seed, window, out):
            """``seed`` 100 for a stream, 0 for a whole utterance."""
            drawn = np.random.RandomState(7000 + seed + window).standard_normal((1, *out.shape))
            out.copy_(torch.from_numpy(drawn[0].astype(np.float32)))

    return GoldenNoise()


@pytest.fixture(scope="session")
def flow(golden_noise):
    from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_flow
    from stage_pipeline.engines.step_audio2.token2wav.flow import Flow

    config, weights = load_flow(GOLDENS)
    return Flow(weights, config, golden_noise.flow(config.mels))


@pytest.fixture(scope="session")
def vocoder():
    from stage_pipeline.engines.step_audio2.token2wav.checkpoint import load_hift

    return load_hift(GOLDENS)


@pytest.fixture(scope="session")
def voice(golden):
    from stage_pipeline.engines.step_audio2.token2wav.flow import VoiceFeatures

    return VoiceFeatures(
        golden("prompt", "prompt_tokens")[0].long(),
        golden("prompt", "prompt_mel")[0],
        golden("prompt", "spk_emb")[0],
    )


@pytest.fixture(scope="session")
def caches(flow, voice):
    return flow.prompt_caches(voice)


@pytest.fixture(scope="session")
def close_to():
    """``close_to(ours, theirs, tolerance)`` in shape, and by the largest difference."""

    def check(ours, theirs, tolerance):
        assert ours.shape == theirs.shape
        worst = (ours.double() - theirs.double()).abs().max().item()
        assert worst <= tolerance, f"off by {worst:.3g}, more than {tolerance:.3g}"

    return check


@pytest.fixture
def exact_products():
    """On a GPU: float32 products without TF32, as a CPU computes them."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def engine(shelf):
    """``engine(options…)``: the whole of Token2Wav on the tiny checkpoint; closed at the end."""
    from stage_pipeline.engines.step_audio2.token2wav.engine import StepAudio2Token2Wav, Token2WavOptions

    made = []

    def make(voices=None, noise=None, **options):
        prompts = voices or {"default": str(GOLDENS / "prompt_22k_stereo.wav")}
        made.append(StepAudio2Token2Wav(GOLDENS, shelf, prompts, {}, Token2WavOptions(**options), noise))
        return made[-1]

    yield make
    for one in made:
        one.close()
