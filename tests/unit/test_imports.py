"""Imports point one way: api → workers → stage_pipeline; the command reaches the system over HTTP."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"stage_pipeline", "workers", "api", "stagewave"}
MAY_IMPORT = {
    "stage_pipeline": set[str](),
    "workers": {"stage_pipeline"},
    "api": {"stage_pipeline", "workers"},
    "stagewave": {"stage_pipeline", "workers", "api"},
}
FOREIGN_TO_STAGES = {"flask", "celery", "kombu", "redis", "boto3", "botocore"}
HEAVY = {"torch", "vllm", "onnxruntime", "faster_whisper", "ctranslate2", "onnx"}


def imported_by(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(OURS))
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        for name in imported_by(path)
        if name.split(".")[0] in OURS - MAY_IMPORT[package] - {package}
    }
    assert not wrong


def test_the_stages_know_no_queue_and_no_web() -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("stage_pipeline")
        for name in imported_by(path)
        if name.split(".")[0] in FOREIGN_TO_STAGES
    }
    assert not wrong


def test_the_api_never_imports_an_engine() -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("api")
        for name in imported_by(path)
        if name.startswith("stage_pipeline.engines")
    }
    assert not wrong


def test_starting_the_api_loads_nothing_heavy() -> None:
    code = f"import sys, api.app; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
