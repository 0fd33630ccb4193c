"""Where a thread's kernels go: on a GPU a queue of its own, so that what somebody waits for need not stand
behind what nobody does."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

_AHEAD, _BEHIND = -1, 0


class Lane:
    """One thread's, on ``device``; on a CPU it changes nothing. ``ahead``: what waits in it begins before
    what waits in other lanes, whatever is under way there."""

    def __init__(self, device: torch.device, *, ahead: bool) -> None:
        priority = _AHEAD if ahead else _BEHIND
        self._stream = torch.cuda.Stream(device, priority=priority) if device.type == "cuda" else None

    def taken(self) -> AbstractContextManager[object]:
        """While in it, this thread's kernels go there; what they need has to be there already."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def settle(self) -> None:
        """Wait until all that was begun in it is done: other lanes can use that from now on."""
        if self._stream is not None:
            self._stream.synchronize()
