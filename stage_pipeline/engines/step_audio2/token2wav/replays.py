"""Runs a function at fixed shapes from CUDA graphs, which take a thousand small kernels in one launch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

_WARM_UP_RUNS = 2


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor


class Replays:
    """For one thread. Without ``enabled`` (a CPU, or to debug) it calls the function itself."""

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self._device = device
        self._enabled = enabled
        self._captured: dict[Hashable, _Captured] = {}
        # One for all graphs: they never run at the same time.
        self._memory = torch.cuda.graph_pool_handle() if enabled else None

    def run(
        self,
        key: Hashable,
        function: Callable[..., Tensor],
        inputs: tuple[Tensor, ...],
        idle: Callable[[], tuple[Tensor, ...]],
    ) -> Tensor:
        """``function(*inputs)``, which may change tensors of its own in place. ``key`` names the function
        and every shape in it. ``idle()`` are inputs of the same shapes that change nothing anybody reads:
        they are what is captured. The output is overwritten by the next run of any key."""
        if not self._enabled:
            return function(*(tensor.to(self._device, non_blocking=True) for tensor in inputs))
        # A thread of its own starts on the first GPU.
        with torch.cuda.device(self._device):
            captured = self._captured.get(key)
            if captured is None:
                captured = self._captured[key] = self._capture(function, idle())
            for static, tensor in zip(captured.inputs, inputs, strict=True):
                static.copy_(tensor, non_blocking=True)
            captured.graph.replay()
            return captured.output

    def _capture(self, function: Callable[..., Tensor], idle: tuple[Tensor, ...]) -> _Captured:
        inputs = tuple(tensor.to(self._device).clone() for tensor in idle)
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch has no types for it
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_RUNS):
                function(*inputs)
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._device)
        # A graph's kernels have the priority of the stream they are captured on, wherever it is replayed;
        # the default stream takes no captures.
        stream = None if current == torch.cuda.default_stream(self._device) else current
        # Other threads may go on allocating meanwhile.
        with torch.cuda.graph(graph, pool=self._memory, stream=stream, capture_error_mode="thread_local"):
            output = function(*inputs)
        return _Captured(graph, inputs, output)
