"""Every kind of break: a name, and what to do to a running system."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

from tests.chaos.rig import Rig
from workers.leader import TERM_S

Break = Callable[[Rig], None]

PROCESSES = ("api", "thinker", "token2wav", "io", "scheduler")
LONGER_THAN_A_LEASE_S = 3.0


def breaks(*, thorough: bool) -> Iterator[tuple[str, Break]]:
    """Each kind once; ``thorough``: also in several phases, and the long ones."""
    moments = (0.0, 0.4, 0.9) if thorough else (0.2,)
    for name in PROCESSES:
        for moment in moments:
            label = f"{name} killed" + (f", {moment:g} s later" if thorough else "")
            yield label, _killed(name, moment)
    for names in [[name] for name in PROCESSES] if thorough else [["api", "thinker", "token2wav", "io"]]:
        yield f"{' and '.join(names)} paused for longer than a lease", _paused(*names)
    yield "both model pools killed at once", _both_killed
    yield "broker killed, starts again with its log", lambda rig: rig.kill("broker")
    yield "broker away three times for 2 s", _broker_flaps
    yield "broker hangs for 3 s", lambda rig: rig.pause("broker", seconds=3)
    yield "broker out of memory for 2 s", _out_of_memory
    yield "all clients of the broker thrown out", _clients_thrown_out
    yield "object store away for 5 s", lambda rig: rig.kill("object store", down_s=5)
    yield "object store hangs for 3 s", lambda rig: rig.pause("object store", seconds=3)
    yield "rolling restart of all workers", _rolling_restart
    yield "two schedulers at once", _two_schedulers
    yield "clocks of all processes jump by hours", _clocks_jump
    yield "clock of the broker jumps by an hour", _broker_clock_jumps
    if thorough:
        yield "broker away for 60 s", lambda rig: rig.kill("broker", down_s=60)
        yield "object store away for 30 s", lambda rig: rig.kill("object store", down_s=30)
        yield "everything but broker and store killed", _all_killed


def _killed(name: str, after_s: float) -> Break:
    def do(rig: Rig) -> None:
        time.sleep(after_s)
        rig.kill(name)

    return do


def _paused(*names: str) -> Break:
    return lambda rig: rig.pause(*names, seconds=LONGER_THAN_A_LEASE_S)


def _both_killed(rig: Rig) -> None:
    for name in ("thinker", "token2wav"):
        rig.kill(name)


def _all_killed(rig: Rig) -> None:
    for name in PROCESSES:
        rig.kill(name)


def _broker_flaps(rig: Rig) -> None:
    for _ in range(3):
        rig.kill("broker", down_s=2)
        time.sleep(1.5)


def _out_of_memory(rig: Rig) -> None:
    admin = rig.admin()
    admin.config_set("maxmemory", "1mb")
    time.sleep(2)
    admin.config_set("maxmemory", "0")


def _clients_thrown_out(rig: Rig) -> None:
    admin = rig.admin()
    for _ in range(3):
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(0.3)


def _rolling_restart(rig: Rig) -> None:
    for name in ("thinker", "token2wav", "io"):
        child = rig.child(name)
        child.deaths = 0
        pid = child.pid
        child.signal(signal.SIGTERM)
        rig.wait_until(lambda child=child, pid=pid: child.pid != pid, f"{name} was started again")


def _two_schedulers(rig: Rig) -> None:
    """The leader sleeps until another one leads, then wakes up and takes itself for the leader still."""
    second = rig.second_scheduler()
    try:
        rig.pause("scheduler", seconds=TERM_S + 1)
        time.sleep(1)
    finally:
        second.kill()
        second.wait()


def _clocks_jump(rig: Rig) -> None:
    hours = dict(zip(PROCESSES, (3, 5, -5, -2, 9), strict=True))
    for sign in (1, -1, 0):
        for name, by in hours.items():
            rig.clocks.shift(name, sign * by * 3600)
        time.sleep(1.2)


def _broker_clock_jumps(rig: Rig) -> None:
    """Ahead: every lease runs out at once. Back: those that were made meanwhile would last an hour."""
    for seconds in (3600, 0):
        rig.shift_broker_clock(seconds)
        time.sleep(1.2)


def random_breaks(rig: Rig, stop: threading.Event, every_s: float, seed: int) -> int:
    """Break something at random every few seconds until ``stop``; how often."""
    import random

    chance = random.Random(seed)
    kinds = [
        (name, action)
        for name, action in breaks(thorough=False)
        if not any(word in name for word in ("hangs", "three times", "two schedulers", "jump"))
    ]
    done = 0
    while not stop.wait(every_s):
        chance.choice(kinds)[1](rig)
        done += 1
    return done
