"""docs/client.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.client.conftest import environ_of
from tests.integration.conftest import ROOT, System


def test_the_examples_work_as_they_stand(served: System, tmp_path: Path):
    page = (ROOT / "docs" / "client.md").read_text().replace("http://127.0.0.1:8000", served.url)
    python, shell = (
        "".join(re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)) for kind in ("python", "sh")
    )
    binaries = tmp_path / "bin"
    binaries.mkdir()
    command = binaries / "stagewave"
    command.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from stagewave.cli import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    environ = environ_of(served) | {"STAGEWAVE_PORT": str(served.settings.port)}
    environ["PATH"] = f"{binaries}:{os.environ['PATH']}"

    for interpreter, script in (([sys.executable, "-c"], python), (["bash", "-euc"], shell)):
        done = subprocess.run(
            [*interpreter, script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stdout + done.stderr

    assert (tmp_path / "morning.wav").read_bytes()[:4] == b"RIFF"
    assert (tmp_path / "live.pcm").stat().st_size > 0
    for name in ("transcripts/morning.srt", "transcripts/monday/call.srt", "transcripts/empty.srt"):
        assert "-->" in (tmp_path / name).read_text()
    assert {path.name for path in (tmp_path / "wav").iterdir()} == {"hello.mp3", "bye.mp3"}
    assert (tmp_path / "results/output.jsonl").read_text().count("\n") == 1
