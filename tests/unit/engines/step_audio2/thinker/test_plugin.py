"""What vLLM calls in each of its processes, for whichever model."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from stage_pipeline.engines.step_audio2.thinker import plugin


def test_it_is_installed_where_vllm_looks():
    (entry,) = (
        entry for entry in entry_points(group="vllm.general_plugins") if entry.name == "step_audio_2"
    )
    assert entry.load() is plugin.register


@pytest.mark.parametrize(
    "version", ["0.24.0", "0.26.0", "0.27.1", "0.32.0", "0.32.1.dev7+gabc", "0.30.0rc1"]
)
def test_versions_it_was_run_with_pass(version):
    assert plugin.version_fault(version) is None


@pytest.mark.parametrize("version", ["0.23.9", "0.33.0", "1.24.0", "0.2.7", "dev"])
def test_another_version_is_named_with_those_that_fit(version):
    fault = plugin.version_fault(version)
    assert "0.24 to 0.32" in fault
    assert version in fault


def test_without_vllm_it_does_nothing_and_imports_nothing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    plugin.register()


def test_it_is_cheap_to_load():
    """Neither torch nor transformers comes with it: a process that serves another model pays nothing."""
    code = (
        f"import sys; import {plugin.__name__}; "
        "print(*({'torch', 'transformers', 'vllm', 'pydantic'} & sys.modules.keys()))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.split() == []
