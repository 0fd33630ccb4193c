"""docs/openai.md."""

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import ROOT, System


def test_the_examples_work_as_they_stand(noop: System, tmp_path: Path):
    page = (ROOT / "docs" / "openai.md").read_text().replace("http://127.0.0.1:8000", noop.url)
    python, shell = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "sh"))
    for interpreter, script in (([sys.executable, "-c"], python), (["bash", "-euc"], shell)):
        done = subprocess.run([*interpreter, *script], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        assert b"error" not in done.stdout
    assert (tmp_path / "morning.wav").read_bytes()[:4] == b"RIFF"
    assert (tmp_path / "morning.flac").read_bytes()[:4] == b"fLaC"
