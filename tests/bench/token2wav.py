"""How fast Step-Audio2's Token2Wav is, and how far from what the machine could do.

    python -m tests.bench.token2wav                                                  (CPU, tiny checkpoint)
    python -m tests.bench.token2wav --size full --device cuda --dtype float16 --json OUT --rival

Random weights: they cost what real ones cost. Prints, for one run:

- the first chunk (28 tokens), RTF of one stream and of one whole utterance;
- audio seconds per second at 1, 4, 8, … streams, in windows and whole;
- a stream's first chunk and its end while as many whole utterances as the highest level are being voiced;
- a window's time far into long audio, which must not grow;
- the work of a window (operations and bytes, counted) beside what the machine does a second (measured):
  the floor;
- in half precision, how far its mel and its wave are from those of float32;
- with ``--rival``, the public package ``step-audio2`` on the same weights and tokens (full size only: its
  buffers have no other). It is not a dependency of this project: see ``token2wav_rival``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.engines.step_audio2.make_checkpoint import write_token2wav
from stage_pipeline.engines.step_audio2.token2wav.engine import StepAudio2Token2Wav, Token2WavOptions
from stage_pipeline.engines.step_audio2.token2wav.flow_window import Window, WindowShape

POLICY = FixedWindows()
SECONDS_A_TOKEN = 0.04


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=("tiny", "full"), default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--streams", default="1,4,8", help="levels of concurrency")
    parser.add_argument("--tokens", type=int, default=250, help="of each utterance: 25 a second")
    parser.add_argument("--rounds", type=int, default=2, help="utterances of each stream at each level")
    parser.add_argument("--wait-ms", type=float, default=2.0)
    parser.add_argument("--whole-frames", type=int, default=16384)
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--vocoder-dtype", choices=("float32", "float16"), default="float16")
    parser.add_argument("--rival", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    levels = [int(level) for level in arguments.streams.split(",")]
    rows: dict[str, object] = {"torch": torch.__version__, "device": machine(arguments.device)}

    def row(name: str, **figures: float | str) -> None:
        rows[name] = figures
        shown = (
            "{}={:.4g}".format(*pair) if isinstance(pair[1], float) else "{}={}".format(*pair)
            for pair in figures.items()
        )
        print(f"{name:<28}", *shown, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        write_token2wav(model, arguments.size)

        def engine(dtype: str, vocoder_dtype: str, streams: int) -> StepAudio2Token2Wav:
            options = Token2WavOptions(
                device=arguments.device,
                dtype=getattr(torch, dtype),
                streams=streams,
                wait_ms=arguments.wait_ms,
                whole_frames=arguments.whole_frames,
                graphs=not arguments.no_graphs,
                compile=not arguments.no_compile,
                vocoder_dtype=getattr(torch, vocoder_dtype),
            )
            return StepAudio2Token2Wav(model, model, {}, {}, options)

        if arguments.dtype != "float16":
            arguments.vocoder_dtype = "float32"
        ours = engine(arguments.dtype, arguments.vocoder_dtype, max(levels))
        started = time.perf_counter()
        ours.warm_up()
        row("warm_up", seconds=time.perf_counter() - started)
        one_stream(ours, arguments.tokens, row)
        many_streams(ours, levels, arguments.tokens, arguments.rounds, row)
        beside_wholes(ours, max(levels), arguments.tokens, row)
        long_audio(ours, row)
        floor(ours, max(levels), arguments.device, arguments.dtype, row)
        ours.close()
        if arguments.dtype != "float32":
            half = engine(arguments.dtype, arguments.vocoder_dtype, 1)
            precision(half, lambda: engine("float32", "float32", 1), arguments.tokens, row)
        if arguments.rival:
            from tests.bench.token2wav_rival import measure

            del ours
            measure(model, arguments.device, tokens_of(0, arguments.tokens), row)


def machine(device: str) -> str:
    return (
        torch.cuda.get_device_name()
        if device.startswith("cuda")
        else f"cpu, {torch.get_num_threads()} threads"
    )


def tokens_of(seed: int, count: int) -> tuple[int, ...]:
    return tuple(np.random.RandomState(seed).randint(0, 6561, count).tolist())


def windows(tokens: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], bool]]:
    consumed, final = 0, False
    while not final:
        window = POLICY.next_window(tokens, consumed, True)
        if window is None:
            return
        consumed, final = window.consumed, window.final
        yield tokens[window.start : window.stop], final


def speak(engine: StepAudio2Token2Wav, seed: int, count: int, *, live: bool) -> float:
    """Voice one utterance; the seconds until its first piece."""
    tokens = tokens_of(seed, count)
    started, first, samples = time.perf_counter(), 0.0, 0
    stream = engine.open("default", seed)
    for fed, final in windows(tokens) if live else [(tokens, True)]:
        for piece in stream.feed(fed, final):
            first = first or time.perf_counter() - started
            samples += len(piece)
    stream.close()
    if samples != 960 * count:
        raise SystemExit(f"{count} tokens became {samples} samples")
    return first


def times(work: Callable[[], object], repeats: int = 10) -> list[float]:
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return sorted(taken)


def one_stream(engine: StepAudio2Token2Wav, count: int, row: Callable[..., None]) -> None:
    firsts = sorted(speak(engine, seed, 60, live=True) for seed in range(15))
    row("first_chunk", p50_ms=1e3 * statistics.median(firsts), worst_ms=1e3 * firsts[-1])
    audio_s = count * SECONDS_A_TOKEN
    for name, live in (("streaming", True), ("whole", False)):
        taken = times(lambda live=live: speak(engine, 1, count, live=live), 5)
        row(f"one/{name}", rtf=statistics.median(taken) / audio_s, ms=1e3 * statistics.median(taken))


def many_streams(
    engine: StepAudio2Token2Wav, levels: list[int], count: int, rounds: int, row: Callable[..., None]
) -> None:
    for name, live in (("streaming", True), ("whole", False)):
        for level in levels:
            firsts: list[float] = []

            def run(at: int, live: bool = live, firsts: list[float] = firsts) -> None:
                for turn in range(rounds):
                    firsts.append(speak(engine, 1000 * at + turn, count, live=live))

            threads = [threading.Thread(target=run, args=(at,)) for at in range(level)]
            started = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            taken = time.perf_counter() - started
            audio_s = level * rounds * count * SECONDS_A_TOKEN
            row(
                f"{level}/{name}",
                audio_s_per_s=audio_s / taken,
                first_p50_ms=1e3 * statistics.median(firsts),
                first_worst_ms=1e3 * max(firsts),
            )


def beside_wholes(
    engine: StepAudio2Token2Wav, level: int, count: int, row: Callable[..., None], rounds: int = 10
) -> None:
    stop = threading.Event()
    done: list[float] = []

    def run(at: int) -> None:
        turn = 0
        while not stop.is_set():
            speak(engine, 5000 * at + turn, count, live=False)
            done.append(time.perf_counter())
            turn += 1

    threads = [threading.Thread(target=run, args=(at,)) for at in range(level)]
    for thread in threads:
        thread.start()
    while len(done) < 2 * level:  # each has come round twice
        time.sleep(0.01)
    began, firsts, ends = time.perf_counter(), [], []
    for turn in range(rounds):
        started = time.perf_counter()
        firsts.append(speak(engine, turn, count, live=True))
        ends.append(time.perf_counter() - started)
    took = time.perf_counter() - began
    wholes = sum(began <= moment <= began + took for moment in done)
    stop.set()
    for thread in threads:
        thread.join()
    row(
        f"beside {level} wholes",
        first_p50_ms=1e3 * statistics.median(firsts),
        first_worst_ms=1e3 * max(firsts),
        end_p50_ms=1e3 * statistics.median(ends),
        whole_audio_s_per_s=wholes * count * SECONDS_A_TOKEN / took,
    )


def long_audio(engine: StepAudio2Token2Wav, row: Callable[..., None]) -> None:
    tokens = tokens_of(7, POLICY.size * 150 + POLICY.lookahead)
    stream = engine.open("default", 7)
    taken = []
    for fed, _ in list(windows(tokens))[:150]:
        started = time.perf_counter()
        for _piece in stream.feed(fed, False):
            taken.append(time.perf_counter() - started)
    stream.close()
    for at in (5, 30, 60, 90, 140):
        row(f"window_at/{at}_s", ms=1e3 * statistics.median(taken[at : at + 8]))


@torch.inference_mode()
def floor(
    engine: StepAudio2Token2Wav, streams: int, device: str, dtype: str, row: Callable[..., None]
) -> None:
    """Operations of one window of one stream, counted while it runs; bytes that it must read at least."""
    decoder = engine._windows._streams
    flow, slots = decoder._flow, decoder.slots
    caches = engine._windows._caches_of(engine._features["default"])
    state = slots.take(caches)
    shape = WindowShape(POLICY.size, 256)
    packed = decoder._flow_windows.pack([Window(state, tokens_of(0, 28), 25)], shape, 1).to(flow.device)

    def counted(work: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
        with FlopCounterMode(display=False) as counter:
            result = work()
        return result, counter.get_total_flops() / 1e9

    torch.compiler.set_stance("force_eager")  # the counter sees no compiled code
    frames, encoder = counted(lambda: decoder._flow_windows.encode(packed, shape))
    mel, solver = counted(lambda: decoder._flow_windows.solve(packed, frames))
    if device.startswith("cuda"):
        # Nor does it see a kernel of our own: two products of queries with all keys, in both halves.
        steps, layers, _, keys, _, heads, width = slots.step_keys.shape
        solver += steps * layers * 2 * 4 * mel.shape[1] * keys * heads * width / 1e9
    places = torch.tensor([[state.slot, 0, 50]], device=flow.device)
    noise = decoder._noise_for(mel)
    _, vocoder = counted(lambda: decoder._vocoder_windows.run(mel, places, noise, full=True))
    torch.compiler.set_stance("default")
    slots.give_back(state)
    weights = sum(p.numel() * p.element_size() for p in flow.weights.parameters())
    weights += sum(
        tensor.numel() * tensor.element_size()
        for block in flow.weights.decoder.estimator._blocks
        for tensor in (block.attn.weight, block.conv.block["1"].taps, block.conv.block["6"].taps)
    )
    cache = slots.step_keys[:, :, 0].numel() * 2 * slots.step_keys.element_size()
    row("work/window", encoder_gflop=encoder, solver_gflop=solver, vocoder_gflop=vocoder,
        flow_weights_mb=weights / 1e6, cache_mb=cache / 1e6)  # fmt: skip
    speed = getattr(torch, dtype)
    size = 8192 if device.startswith("cuda") else 1024
    left, right = (torch.randn(size, size, device=device).to(speed) for _ in range(2))
    flops = 2 * size**3 / best(lambda: left @ right, device)
    source = torch.randn(size * size, device=device)
    copied = torch.empty_like(source)
    moved = 2 * source.numel() * 4 / best(lambda: copied.copy_(source), device)
    row("machine", tflop_per_s=flops / 1e12, gb_per_s=moved / 1e9)
    for batch in sorted({1, streams}):
        compute = batch * (encoder + solver + vocoder) * 1e9 / flops
        # Every Euler step reads the estimator's weights again; each stream its own keys and values, once.
        memory = (10 * weights + batch * cache) / moved
        row(
            f"floor/{batch}",
            compute_ms=1e3 * compute,
            memory_ms=1e3 * memory,
            audio_s_per_s=batch / max(compute, memory),
        )


def best(work: Callable[[], object], device: str) -> float:
    def run() -> None:
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    return times(run, 8)[0]


@torch.inference_mode()
def precision(
    half: StepAudio2Token2Wav,
    full: Callable[[], StepAudio2Token2Wav],
    count: int,
    row: Callable[..., None],
) -> None:
    """``full`` makes the engine to compare with: float32 in earnest, without the tensor cores' own."""
    tokens = tokens_of(3, count)
    mels, waves, streamed = [], [], []
    for make in (lambda: half, full):
        engine = make()
        torch.backends.cudnn.allow_tf32 = make is not full
        flow = engine._windows._flow
        ids = torch.tensor(tokens, device=flow.device)
        mels.append(flow.whole([engine._features["default"]], [ids])[0].float().cpu())
        (wave,) = engine.open("default", 3).feed(tokens, True)
        waves.append(torch.from_numpy(wave))
        stream = engine.open("default", 3)
        pieces = [piece for fed, final in windows(tokens) for piece in stream.feed(fed, final)]
        streamed.append(torch.from_numpy(np.concatenate(pieces)))
        engine.close()
    torch.backends.cudnn.allow_tf32 = True
    for name, (ours, exact) in (("mel", mels), ("wave", waves), ("streamed", streamed)):
        apart = ours - exact
        row(f"precision/{name}", rms=apart.square().mean().sqrt().item(), worst=apart.abs().max().item(),
            rms_of_float32=exact.square().mean().sqrt().item())  # fmt: skip


if __name__ == "__main__":
    main()
