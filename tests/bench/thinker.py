"""How fast Step-Audio2's Thinker makes tokens through our engine host, beside vLLM's own offline rate.

    python -m tests.bench.thinker                                                    (CPU, tiny checkpoint)
    python -m tests.bench.thinker --checkpoint full --out OUT.json                       (one NVIDIA GPU)

Random weights: they cost what real ones cost. For each level of concurrency, with CUDA graphs and without:

- ours: so many threads, each with a request in ``StepAudio2Thinker``, as the tasks of a pool have it:
  tokens a second, time per token, time to the 28 audio tokens with which Token2Wav begins;
- the rival: the same prompts and sampling parameters in ``vllm.LLM.generate``, which hands nothing on until
  all is done.

Each engine runs in a process of its own, one after the other. Needs vLLM and this repository, installed or
not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST_WINDOW = 28
TEXT = (
    "The quick brown fox jumps over the lazy dog, and request {number} says so once again in other words."
)
LEVELS = {"full": "1,8,32,64,128", "tiny": "1,4,16"}
TOKENS = {"full": 300, "tiny": 60}
WARM_UP_TOKENS = 24


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--model", type=Path, help="a folder with a checkpoint, instead of making one")
    parser.add_argument("--levels", help="requests at a time")
    parser.add_argument("--tokens", type=int, help="of each answer")
    parser.add_argument("--modes", default="graphs,eager")
    parser.add_argument("--memory", type=float, default=0.85, help="share of the GPU's memory")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", choices=("ours", "rival"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.levels = arguments.levels or LEVELS[arguments.checkpoint]
    arguments.tokens = arguments.tokens or TOKENS[arguments.checkpoint]
    if arguments.run:
        rows = {"ours": measure_ours, "rival": measure_rival}[arguments.run](arguments)
        arguments.out.write_text(json.dumps(rows))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, Path(folder))


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """Run everything, print a table, and write ``--out`` after each part."""
    announce_plugin(folder)
    model = arguments.model
    if model is None:
        from stage_pipeline.engines.step_audio2.thinker.random_checkpoint import write_thinker

        model = folder / "model"
        write_thinker(model, arguments.checkpoint)
    results: dict[str, dict[str, object]] = {}
    for mode in arguments.modes.split(","):
        found: dict[str, list[dict[str, float]]] = {}
        for who in ("ours", "rival"):
            out = folder / f"{mode}-{who}.json"
            options = [f"--{name}={getattr(arguments, name)}" for name in ("levels", "tokens", "memory")]
            command = [sys.executable, "-m", "tests.bench.thinker", *options, "--model", str(model)]
            subprocess.run(
                [*command, "--modes", mode, "--run", who, "--out", str(out)], cwd=ROOT, check=True
            )
            found[who] = json.loads(out.read_text())
        rows = [
            {**ours, "rival_tokens_per_s": rival["tokens_per_s"], "share_of_rival": share(ours, rival)}
            for ours, rival in zip(found["ours"], found["rival"], strict=True)
        ]
        results[mode] = {"rows": rows}
        for row in rows:
            figures = (f"{name}={value:.4g}" for name, value in row.items())
            print(f"{mode:<7}", *figures, flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=1))


def share(ours: dict[str, float], rival: dict[str, float]) -> float:
    return ours["tokens_per_s"] / rival["tokens_per_s"]


def announce_plugin(folder: Path) -> None:
    """Where the repository is not installed, vLLM's processes have to learn of its plugin all the same."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    if any("step_audio2" in plugin.value for plugin in entry_points(group="vllm.general_plugins")):
        return
    about = folder / "plugin" / "stagewave_bench-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stagewave-bench\nVersion: 0\n")
    module = "stage_pipeline.engines.step_audio2.thinker.plugin:register"
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\nstep_audio_2 = {module}\n")
    os.environ["PYTHONPATH"] += os.pathsep + str(about.parent)


def engine_options(arguments: argparse.Namespace) -> dict[str, object]:
    from vllm.platforms import current_platform

    levels = [int(level) for level in arguments.levels.split(",")]
    return {
        "max_num_seqs": max(levels),
        "gpu_memory_utilization": None if current_platform.is_cpu() else arguments.memory,
        "enforce_eager": arguments.modes == "eager",
        "max_model_len": 2048,
        "max_num_batched_tokens": 8192,
    }


def measure_ours(arguments: argparse.Namespace) -> list[dict[str, float]]:
    from stage_pipeline.engines.step_audio2.thinker.engine import StepAudio2Thinker
    from stage_pipeline.engines.step_audio2.thinker.engine_host import HostOptions
    from stage_pipeline.stages import GenerateRequest, Task

    began = time.perf_counter()
    options = HostOptions(arguments.model, **engine_options(arguments))  # type: ignore[arg-type]
    thinker = StepAudio2Thinker(options, dialect="official", audio_out_s=600, sampling={})
    thinker.warm_up()
    print(f"ours ({arguments.modes}): ready after {time.perf_counter() - began:.0f} s", flush=True)

    def answer(number: int, tokens: int) -> list[tuple[float, int, int]]:
        """After each delta: the moment, audio tokens and tokens of any kind so far."""
        sampling = {"min_tokens": tokens, "max_tokens": tokens}
        request = GenerateRequest(
            f"request-{number}-{tokens}",
            Task.TTS,
            text=TEXT.format(number=number),
            seed=1000 + number,
            sampling=sampling,
        )
        steps, codes, ids = [(time.perf_counter(), 0, 0)], 0, 0
        for delta in thinker.generate(request):
            codes += len(delta.tokens)
            ids += len(delta.output_ids)
            steps.append((time.perf_counter(), codes, ids))
        return steps

    def together(level: int, tokens: int) -> list[list[tuple[float, int, int]]]:
        made: list[list[tuple[float, int, int]]] = []
        threads = [
            threading.Thread(target=lambda number=number: made.append(answer(number, tokens)))
            for number in range(level)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made

    rows = []
    for level in map(int, arguments.levels.split(",")):
        together(level, WARM_UP_TOKENS)
        began = time.perf_counter()
        answers = together(level, arguments.tokens)
        wall_s = time.perf_counter() - began
        first_window = [
            next((at for at, codes, _ in steps if codes >= FIRST_WINDOW), steps[-1][0]) - steps[0][0]
            for steps in answers
        ]
        per_token = [(steps[-1][0] - steps[0][0]) / steps[-1][2] for steps in answers]
        rows.append(
            {
                "concurrency": level,
                "tokens_per_s": sum(steps[-1][2] for steps in answers) / wall_s,
                "ms_per_token": statistics.mean(per_token) * 1000,
                "ms_to_28": statistics.mean(first_window) * 1000,
                "ms_to_28_worst": max(first_window) * 1000,
            }
        )
        print("ours", rows[-1], flush=True)
    thinker.close()
    return rows


def measure_rival(arguments: argparse.Namespace) -> list[dict[str, float]]:
    from stage_pipeline.engines.step_audio2.thinker import engine_host
    from stage_pipeline.engines.step_audio2.thinker.prompts import (
        DIALECTS,
        messages_of,
        prompt_ids,
        segments,
    )
    from stage_pipeline.engines.step_audio2.thinker.vocabulary import Vocabulary
    from stage_pipeline.stages import GenerateRequest, Task

    from vllm import LLM, SamplingParams  # isort: skip  # reads the environment that engine_host sets up

    vocabulary = Vocabulary.load(arguments.model)
    host_options = engine_host.HostOptions(arguments.model, **engine_options(arguments))  # type: ignore[arg-type]
    values = engine_host.engine_args(host_options)
    llm = LLM(**{name: value for name, value in values.items() if value is not None})

    def prompt(number: int) -> dict[str, list[int]]:
        request = GenerateRequest("r", Task.TTS, text=TEXT.format(number=number))
        return {
            "prompt_token_ids": prompt_ids(
                segments(messages_of(request, "official"), DIALECTS["official"]), vocabulary
            )
        }

    def rate(level: int, tokens: int) -> float:
        sampling = [
            SamplingParams(
                temperature=0.7,
                top_p=0.9,
                repetition_penalty=1.1,
                seed=1000 + number,
                min_tokens=tokens,
                max_tokens=tokens,
                stop_token_ids=list(vocabulary.ends),
                detokenize=False,
            )
            for number in range(level)
        ]
        prompts = [prompt(number) for number in range(level)]
        began = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        wall_s = time.perf_counter() - began
        return sum(len(output.outputs[0].token_ids) for output in outputs) / wall_s

    rows = []
    for level in map(int, arguments.levels.split(",")):
        rate(level, WARM_UP_TOKENS)
        rows.append({"concurrency": float(level), "tokens_per_s": rate(level, arguments.tokens)})
        print("rival", rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
