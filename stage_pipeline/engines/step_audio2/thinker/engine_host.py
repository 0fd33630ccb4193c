"""vLLM's async engine as task threads see it: submit, take deltas, abort; and what becomes of its death.

The engine's loop runs in a thread of its own, the engine core in a process of its own, which is made in the
main thread: it dies when the thread does that made it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.step_audio2.thinker import engine_child
from stage_pipeline.engines.step_audio2.thinker.sampling import Sampling
from stage_pipeline.engines.step_audio2.thinker.start_advice import start_advice
from stage_pipeline.errors import EngineDead, ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave

_ENVIRON = {
    # Nothing is fetched, and nothing is told to anybody.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # Fork would copy our connections and threads' locks into the engine core, and CUDA does not survive it.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # On a CPU other processes run too, and the model is a small one, whose threads would only wait for
    # each other. (On a GPU vLLM itself has one.)
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""For vLLM, which is set up by the environment, in part when it is imported; what stands there is left."""
for _name, _value in _ENVIRON.items():
    os.environ.setdefault(_name, _value)

from vllm import SamplingParams  # noqa: E402  # see above
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402
from vllm.v1.engine.exceptions import EngineDeadError  # noqa: E402

_log = logging.getLogger(__name__)

_WATCH_S = 0.5
"""The engine's processes are looked at this often."""
_CLOSE_S = 5.0
_CPU_CACHE_BYTES = 256 * 1024 * 1024
"""Of keys and values on a CPU, where the share of the memory is not asked for: enough for a small model."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """``max_num_seqs``: requests in the engine at a time. ``cache``: for what vLLM prepares once. None:
    vLLM's own default."""

    model_dir: Path
    max_num_seqs: int
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    enforce_eager: bool = False
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    hf_overrides: dict[str, JsonValue] = field(default_factory=dict)
    cache: Path | None = None


class Sink(Protocol):
    """Where a request's output goes; called from the engine's loop."""

    def add(self, ids: list[int], finish: str | None, prompt_tokens: int) -> bool: ...

    def end(self, reason: str, error: Exception | None = None) -> None: ...


class EngineHost:
    """One for a process, made in its main thread. Raises ``DeployError`` when the engine does not start."""

    def __init__(self, options: HostOptions) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self._engine = _start(options, Path(folder) / "faults")
        self._requests: dict[str, tuple[asyncio.Task[None], Sink]] = {}
        self._dead = False
        self._closing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine-loop", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(
        self,
        request_id: str,
        prompt_ids: list[int],
        audio: Float32Wave | None,
        sampling: Sampling,
        sink: Sink,
        *,
        background: bool = False,
    ) -> None:
        """Returns at once. ``audio``: float32 ``[samples]`` at 16 kHz, for the one ``<audio_patch>``.
        ``background``: waits for the others, and makes room for them where the cache is short."""

        def start() -> None:
            if self._dead:
                sink.end("abort", EngineDead())
                return
            work = self._work(request_id, prompt_ids, audio, sampling, sink, int(background))
            self._requests[request_id] = (self._loop.create_task(work), sink)

        self._in_loop(start, sink)

    def abort(self, request_id: str) -> None:
        """The engine is told at once, and leaves the request out of its next step."""

        def stop() -> None:
            task, sink = self._requests.get(request_id, (None, None))
            if task is not None and sink is not None:
                sink.end("abort")
                task.cancel()

        self._in_loop(stop, None)

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return len(self._requests)

    def close(self) -> None:
        """Also at the end of the process, if nobody has called it before."""
        with self._closing:
            if self._loop.is_closed():
                return
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=_CLOSE_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=_CLOSE_S)
            self._engine.shutdown()
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._watching = self._loop.create_task(self._watch())
        self._loop.run_forever()

    def _in_loop(self, call: Callable[[], None], sink: Sink | None) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # closed meanwhile
            if sink is not None:
                sink.end("abort")

    async def _work(
        self,
        request_id: str,
        prompt_ids: list[int],
        audio: Float32Wave | None,
        sampling: Sampling,
        sink: Sink,
        priority: int,
    ) -> None:
        """``priority``: the lowest goes first."""
        try:
            prompt: dict[str, object] = {"prompt_token_ids": prompt_ids}
            if audio is not None:
                prompt["multi_modal_data"] = {"audio": [audio]}
                # Log-mels take 12 ms for 25 s: in a thread of vLLM's, since tokens of all others come
                # through this one.
                (prompt,) = await self._engine.renderer.render_cmpl_async([prompt])
            # A cancelled or closed generator tells the engine to abort.
            generated = self._engine.generate(prompt, _params(sampling), request_id, priority=priority)
            async with aclosing(generated) as outputs:
                async for output in outputs:
                    made = output.outputs[0]
                    prompt_tokens = len(output.prompt_token_ids or ())
                    if sink.add(list(made.token_ids), made.finish_reason, prompt_tokens):
                        break
        except asyncio.CancelledError:
            raise
        except EngineDeadError:
            self._declare_dead()
        except Exception as error:
            if self._engine.errored:
                self._declare_dead()
                return
            sink.end("abort", _refusal(error, request_id))
        finally:
            sink.end("abort")
            if self._requests.get(request_id, (None, None))[1] is sink:
                del self._requests[request_id]

    async def _watch(self) -> None:
        """Nobody may be asking when the engine core dies; who waits then is told at once."""
        while not self._dead:
            await asyncio.sleep(_WATCH_S)
            if self._engine.errored:
                self._declare_dead()

    def _declare_dead(self) -> None:
        if not self._dead:
            self._dead = True
            _log.error("the engine is dead", extra={"requests": len(self._requests)})
        for _, sink in list(self._requests.values()):
            sink.end("abort", EngineDead("vLLM's engine core is gone"))

    async def _stop(self) -> None:
        self._dead = True
        tasks = [task for task, _ in self._requests.values()]
        # vLLM's own goes too: it would take the engine core's end for a failure.
        for task in (*tasks, self._watching, self._engine.output_handler):
            if task is not None:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _start(options: HostOptions, faults: Path) -> AsyncLLM:
    values = {name: value for name, value in engine_args(options).items() if value is not None}
    if options.cache is not None:
        os.environ.setdefault("VLLM_CACHE_ROOT", str(options.cache / "vllm"))
    os.environ[engine_child.PARENT] = str(os.getpid())
    os.environ[engine_child.FAULTS] = str(faults)
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**values))  # type: ignore[arg-type]  # by their names
    except Exception as error:  # whatever any part of vLLM raises, which is all of it
        _log.exception("the engine did not start")
        told = faults.read_text("utf-8") if faults.is_file() else ""
        raise DeployError(start_advice(f"{told}{type(error).__name__}: {error}")) from error
    finally:
        del os.environ[engine_child.PARENT], os.environ[engine_child.FAULTS]


def on_cpu() -> bool:
    """Whether the vLLM that is installed is the one for CPUs."""
    return bool(current_platform.is_cpu())


def engine_args(options: HostOptions) -> dict[str, object]:
    """vLLM's arguments by their names; None: its own default."""
    return {
        "model": str(options.model_dir),
        "max_num_seqs": options.max_num_seqs,
        "tensor_parallel_size": options.tensor_parallel_size,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "kv_cache_memory_bytes": _CPU_CACHE_BYTES
        if on_cpu() and options.gpu_memory_utilization is None
        else None,
        "enforce_eager": options.enforce_eager,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": options.max_model_len,
        "scheduling_policy": "priority",
        "hf_overrides": options.hf_overrides or None,
        "limit_mm_per_prompt": {"audio": 1},
        # Hardly any audio comes twice, and gigabytes of it would be kept in two processes.
        "mm_processor_cache_gb": 0,
        # The checkpoint's own defaults would come before those that are documented here.
        "generation_config": "vllm",
        "disable_log_stats": True,
        "seed": 0,
    }


def _params(sampling: Sampling) -> SamplingParams:
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        seed=sampling.seed,
        stop_token_ids=list(sampling.stop_token_ids),
        # Text is spelled by whoever takes it, of the few ids that are text.
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _refusal(error: Exception, request_id: str) -> StagewaveError:
    # Which of vLLM's errors says that the request is at fault has changed its base class.
    if _CLIENT_ERRORS.intersection(kind.__name__ for kind in type(error).__mro__):
        _log.warning("the engine refused a request", extra={"request_id": request_id})
        return StagewaveError(
            ErrorCode.INVALID_REQUEST, "the model cannot take this request: is it too long?"
        )
    _log.error("the engine failed at a request", exc_info=error, extra={"request_id": request_id})
    return StagewaveError(ErrorCode.ENGINE_FAILED, "the model's engine failed at this request")


_CLIENT_ERRORS = frozenset({"ValueError", "VLLMClientError", "VLLMValidationError"})
