"""Why an engine did not start, said so that one knows what to change."""

from __future__ import annotations

import pytest

from stage_pipeline.engines.start_fault import start_fault


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            "stages.1.max_num_seqs: the GPU's ",
        ),
        (RuntimeError("No CUDA GPUs are available"), "stages.1.devices: there is no such GPU"),
        (MemoryError(), "stages.1.max_num_seqs: this machine's memory is full"),
        (FileNotFoundError(2, "gone", "flow.pt"), "stages.1: the file flow.pt is missing: is model_dir"),
        (KeyError("x"), "stages.1: the engine did not start: KeyError: 'x'"),
        (ValueError("one\ntwo"), "stages.1: the engine did not start: ValueError: one"),
    ],
)
def test_the_key_to_change_is_named(error: Exception, said: str) -> None:
    assert start_fault(error, "stages.1").startswith(said)
    if "did not start" not in said:
        assert start_fault(raised(RuntimeError("loading failed"), error), "stages.1").startswith(said)
    assert "\n" not in start_fault(error, "stages.1")
