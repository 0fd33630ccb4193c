"""What embedded services have in common: a child process that owns a folder, its ports and its secrets."""

from __future__ import annotations

import fcntl
import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stagewave.child import Child

LOOPBACK = "127.0.0.1"
ENDING_S = 3.0
"""How long a start waits for an earlier process in the same folder that is just ending."""
POLL_S = 0.02
_READY_S = 60.0
"""A broker's log of some gigabytes takes that long to load."""

# The process itself holds the lock of its folder: so it is free exactly when that process is gone, also
# when whoever started it was killed and left it running.
_LOCKED = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("another process holds this folder")
os.chdir(os.path.dirname(sys.argv[1]))
os.set_inheritable(fd, True)
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedServiceError(Exception):
    """An embedded service does not start; the text says why, for the person who started it."""


def locked(folder: Path, command: Sequence[str]) -> list[str]:
    """``command``, run in ``folder`` and holding it for as long as it runs."""
    return [sys.executable, "-I", "-S", "-c", _LOCKED, str(folder / "lock"), *command]


def _claim_folder(folder: Path) -> None:
    """Make the folder, or wait until the last process in it has ended. Raises ``EmbeddedServiceError``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + ENDING_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedServiceError(f"another process that still runs uses {folder}") from None
                time.sleep(POLL_S)
    finally:
        os.close(fd)


def start_service(
    folder: Path,
    prepare: Callable[[], Child],
    answers: Callable[[], bool],
    stop: Callable[[], None],
    tries: int = 3,
) -> None:
    """Start what ``prepare`` gives and return when it ``answers``; again, with other ports, when it ends
    before. Raises ``EmbeddedServiceError`` after ``stop``: nothing is left running then."""
    _claim_folder(folder)
    try:
        for _ in range(tries):
            child = prepare()
            child.start()
            if _wait_until_ready(child, answers):
                return
        raise _failed_start(child)
    except BaseException:
        stop()
        raise


def _wait_until_ready(child: Child, answers: Callable[[], bool]) -> bool:
    """False when it ended by itself, as it does when another process has taken its port meanwhile."""
    deadline = time.monotonic() + _READY_S
    while child.exit_code() is None:
        if answers():
            # Ours has ended and another answers? Then it is not ours that is ready.
            return child.exit_code() is None
        if time.monotonic() > deadline:
            raise EmbeddedServiceError(
                f"the {child.name} was not ready after {_READY_S:g} s; its log is {child.log}"
            )
        time.sleep(POLL_S)
    return False


def _failed_start(child: Child) -> EmbeddedServiceError:
    tail = f"The end of its log:\n{child.log_tail()}\nAll of it is in {child.log}"
    return EmbeddedServiceError(f"the {child.name} ended while starting. {tail}")


def stop_child(child: Child, within_s: float) -> None:
    child.signal(signal.SIGTERM)
    deadline = time.monotonic() + within_s
    while child.exit_code() is None and child.pid is not None:
        if time.monotonic() > deadline:
            child.signal(signal.SIGKILL)
        time.sleep(POLL_S)


def write_private(path: Path, text: str) -> None:
    """Replace the file at once: it is never half written, and never readable by others."""
    fresh = path.with_name(path.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def kept_secret(path: Path) -> str:
    """The secret in the file, made when there is none."""
    if not path.exists():
        write_private(path, secrets.token_hex(24))
    return path.read_text(encoding="ascii")


def kept_ports(folder: Path, count: int, *, spread: int) -> list[int]:
    """``count`` free ports for which the port ``spread`` above is free too: those of the last start, so
    that what knows the address goes on working, unless they have been taken."""
    path = folder / "ports"
    if path.exists():
        ports = [int(word) for word in path.read_text(encoding="ascii").split()]
        if len(ports) == count and all(_is_free(port) and _is_free(port + spread) for port in ports):
            return ports
    ports = _free_ports(count, spread)
    write_private(path, " ".join(map(str, ports)))
    return ports


def _free_ports(count: int, spread: int) -> list[int]:
    # Below the ports that systems hand out to outgoing connections (32768 up on Linux, 49152 on macOS):
    # there, one that is free now could be taken at the next restart.
    pool = range(10_240, 32_768 - spread)
    found: list[int] = []
    while len(found) < count:
        port = random.choice(pool)  # noqa: S311  # any free port will do
        near = {port - spread, port, port + spread}
        if near.isdisjoint(found) and _is_free(port) and _is_free(port + spread):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do it: connections of an earlier server that still linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
