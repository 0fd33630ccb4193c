"""Why an engine did not start, in words that say what to change in the deploy config."""

from __future__ import annotations

from collections.abc import Iterator

_KNOWN = (
    (
        "out of memory",
        "max_num_seqs",
        "the GPU's memory is full: lower it, shrink what shares the GPU with gpu_memory_utilization, or "
        "name another GPU in devices",
    ),
    ("Cannot allocate memory", "max_num_seqs", "this machine's memory is full: lower it"),
    ("No CUDA GPUs are available", "devices", "there is no such GPU here"),
    ("invalid device ordinal", "devices", "there is no such GPU here"),
)
"""What is said when an engine does not start, the key to change, and how."""


def start_fault(error: BaseException, stage: str) -> str:
    """``stage`` as the config names it, such as ``stages.0``. One line, for the person who started it."""
    causes = list(_causes(error))
    for cause in causes:
        for sign, key, advice in _KNOWN:
            if sign in str(cause):
                return f"{stage}.{key}: {advice}"
        if isinstance(cause, MemoryError):
            return f"{stage}.max_num_seqs: this machine's memory is full: lower it"
        if isinstance(cause, FileNotFoundError) and cause.filename:
            return f"{stage}: the file {cause.filename} is missing: is model_dir the model's folder?"
    lines = str(error).strip().splitlines() or [""]
    return f"{stage}: the engine did not start: {type(error).__name__}: {lines[0]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
