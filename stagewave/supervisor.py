"""Runs all of Stagewave on one machine: starts the processes, keeps them running, ends them in order."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stage_pipeline.deploy import DeployConfig, DeployError, check_files, check_sharing, load_deploys
from stage_pipeline.errors import StagewaveError
from stagewave.child import Child, end, wait_ended
from stagewave.client import Client
from stagewave.connection import local_url
from stagewave.embedded_broker import EmbeddedBroker
from stagewave.embedded_process import EmbeddedServiceError
from stagewave.embedded_store import EmbeddedStore
from stagewave.errors import ClientError, StartFailed, WrongConfig
from stagewave.home import Home
from stagewave.will import Will
from workers import cannot_start
from workers.broker import connect
from workers.pool_registry import PoolRegistry
from workers.settings import PREFIX, Settings, to_environ

TEND_S = 0.2
"""How often the processes are looked at."""
TRIES = 5
"""Before all are ready, a process that ends this often ends the start: it will not get better."""
READY_S = 900.0
"""A large model takes minutes to load; longer is a fault."""
API_FIRST_S = 1.0
"""How long the pools are left alone after the API was told to stop, so that no more jobs come in. Requests
that wait or listen may take longer to end: that goes on beside the pools' end."""
DRAIN_MARGIN_S = 1.0
"""What a pool needs on top of ``drain_s`` to hand its jobs back and sign off."""
SCHEDULER_END_S = 0.5
SERVICES_END_S = 2.0
"""The broker and the store lose nothing when they are killed; they only start more slowly."""


class Supervisor:
    """``start``, ``wait_ready``, ``tend_until_stopped``, and in any case ``stop``.

    ``stopping`` may be set at any moment, by a signal handler or another thread: the three then return
    soon. It is a plain flag, because a handler that sets a ``threading.Event`` can deadlock with a waiter.
    ``say`` gets a line for a person when something happens.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings = replace(
            settings,
            home=settings.home.resolve(),
            config=tuple(path.resolve() for path in settings.config),
            model_dir=settings.model_dir and settings.model_dir.resolve(),
        )
        self.home = Home(settings.home)
        self.stopping = False
        self._say = say
        self._will: Will | None = None
        self._services: list[EmbeddedBroker | EmbeddedStore] = []
        self._children: list[Child] = []
        self._roles: dict[str, str] = {}
        self._started: set[int] = set()
        self._ready = False

    def start(self) -> None:
        """Start everything, in an order in which each finds what it needs. Raises ``LocalError``."""
        programs = self._programs()
        check_port(self.settings)
        self.home.lock()
        assert self.home.lock_fd is not None  # noqa: S101  # lock() has just set it
        self._will = Will(self.home.lock_fd)
        self._start_services()
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environ |= to_environ(self.settings)
        for program in programs:
            if self.stopping:
                return
            command = [sys.executable, "-m", *program.arguments]
            child = Child(program.name, command, environ, self.home.logs / f"{program.name}.log")
            self._roles[program.name] = program.role
            self._children.append(child)
            self._launch(child)

    def wait_ready(self, update: Callable[[Mapping[str, bool]], None]) -> None:
        """Until every part is ready; ``update`` hears which are. Raises ``StartFailed``."""
        deadline = time.monotonic() + READY_S
        with Client(local_url(self.settings), timeout_s=2.0) as client:
            while not self.stopping:
                self.tend()
                parts = self._parts(client)
                update(parts)
                if all(parts.values()):
                    self._ready = True
                    return
                if time.monotonic() > deadline:
                    late = ", ".join(name for name, ready in parts.items() if not ready)
                    raise StartFailed(f"still waiting for {late}; its log is in {self.home.logs}")
                time.sleep(TEND_S)

    def tend_until_stopped(self) -> None:
        """Keep everything running until ``stopping`` is set."""
        while not self.stopping:
            self.tend()
            time.sleep(TEND_S)

    @contextmanager
    def tended(self) -> Iterator[None]:
        """Keep everything running from another thread while in here; then it is to be stopped."""
        thread = threading.Thread(target=self.tend_until_stopped, name="tend")
        thread.start()
        try:
            yield
        finally:
            self.stopping = True
            thread.join()

    def tend(self) -> None:
        """Look at every process once, and start those again that have ended and waited long enough."""
        if self._will is not None:
            self._will.renew()
        for service in self._services:
            if isinstance(service, EmbeddedStore):
                service.mend()
        for child in self._children:
            if child.due_at is not None:
                if time.monotonic() >= child.due_at:
                    self._launch(child)
            elif (code := child.exit_code()) is not None:
                self._bury(child, code)
            else:
                child.bound_log()

    def stop(self) -> None:
        """End everything: no new requests, then the running work, then what it stands on."""
        api = self._in_role("api")
        for child in api:
            child.signal(signal.SIGTERM)
        wait_ended(api, API_FIRST_S)
        pools = self._in_role("pool")
        self._end([*api, *pools], self.settings.drain_s + DRAIN_MARGIN_S)
        self._end(self._in_role("scheduler"), SCHEDULER_END_S)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda service: service.stop(SERVICES_END_S), self._services))
        self._end(list(self._children), 0)
        if self._will is not None:
            self._will.close()
            self._will = None
        self.home.unlock()

    def left_running(self) -> list[int]:
        """Of all process groups ever started, those that live; after ``stop`` there should be none."""
        return sorted(group for group in self._started if _lives(group))

    def _programs(self) -> list[Program]:
        try:
            deploys = load_deploys(self.settings.config, self.settings.model_dir)
            check_sharing(deploys)
            for deploy in deploys:
                check_files(deploy)
        except DeployError as error:
            raise WrongConfig(str(error)) from error
        return list(programs_of(deploys, self.settings.config))

    def _start_services(self) -> None:
        """The embedded broker and store, where the settings name no others."""
        settings, folder = self.settings, self.home.path
        if settings.redis_url is None:
            self._services.append(broker := EmbeddedBroker(folder / "broker"))
        if settings.s3_endpoint is None:
            self._services.append(store := EmbeddedStore(folder / "store", settings.s3_bucket))
        try:
            self._start_side_by_side(self._services)
        except EmbeddedServiceError as error:
            if self.stopping:
                return
            raise StartFailed(str(error)) from error
        if settings.redis_url is None:
            settings = replace(settings, redis_url=broker.url)
        if settings.s3_endpoint is None:
            settings = replace(
                settings,
                s3_endpoint=store.endpoint,
                s3_access_key=store.access_key,
                s3_secret_key=store.secret_key,
            )
        if settings.webhook_secret is None:
            settings = replace(settings, webhook_secret=self.home.webhook_secret())
        self.settings = settings
        self.home.keep_running(settings)
        self._sign_off_dead()

    def _start_side_by_side(self, services: Sequence[EmbeddedBroker | EmbeddedStore]) -> None:
        with ThreadPoolExecutor(max_workers=2) as threads:
            starts = [threads.submit(service.start) for service in services]
            while not all(start.done() for start in starts):
                for service in services:
                    self._name_in_will(service.child)
                    if self.stopping:
                        service.child.signal(signal.SIGKILL)
                time.sleep(0.02)
        for service in services:
            self._children.append(service.child)
            self._name_in_will(service.child)
        for start in starts:
            start.result()

    def _launch(self, child: Child) -> None:
        child.start()
        self._name_in_will(child)

    def _name_in_will(self, child: Child) -> None:
        if self._will is not None and child.pid is not None:
            self._will.add(child.pid)
            self._started.add(child.pid)

    def _bury(self, child: Child, code: int) -> None:
        if self._will is not None and child.pid is not None:
            self._will.remove(child.pid)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        pause_s = child.bury()
        if child in self._in_role("pool"):
            self._sign_off_dead()
        if code == cannot_start.EXIT_CODE:
            how = _reason(child)
            if not self._ready:
                raise WrongConfig(f"{child.name} cannot start: {how}\nAll of its log is in {child.log}")
        if not self._ready and child.deaths >= TRIES:
            raise StartFailed(
                f"{child.name} ended {TRIES} times while starting ({how}). The end of its log:\n"
                f"{child.log_tail()}\nAll of it is in {child.log}"
            )
        self._say(f"{child.name} ended ({how}); starting it again in {pause_s:g} s, log in {child.log}")

    def _sign_off_dead(self) -> None:
        """So that a worker that was killed, now or with an earlier supervisor, does not pass for one."""
        try:
            PoolRegistry(connect(self.settings.redis_url or "")).forget_dead()
        except StagewaveError:
            pass  # The broker is away, and they fall silent by themselves.

    def _end(self, children: Sequence[Child], within_s: float) -> None:
        end(children, within_s)
        for child in children:
            self._children.remove(child)
            if self._will is not None and child.pid is not None:
                self._will.remove(child.pid)

    def _in_role(self, role: str) -> list[Child]:
        return [child for child in self._children if self._roles.get(child.name) == role]

    def _parts(self, client: Client) -> dict[str, bool]:
        """What there is to wait for, and whether it is ready."""
        running = {child.name: child.exit_code() is None for child in self._children}
        parts = {name: False for name in running if name != "scheduler"}
        try:
            checks = client.ready()["checks"]
        except (ClientError, KeyError):
            return parts
        names = part_names(checks)
        parts = {"api": True} | {names[check]: bool(found["ok"]) for check, found in checks.items()}
        return parts | {"scheduler": running["scheduler"]}


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def part_names(checks: Iterable[str]) -> dict[str, str]:
    """Of each check its name to a person: ``redis`` is the broker, and ``pool:thinker.embedded`` is
    ``thinker``, or with several models ``thinker.embedded``."""
    short = {check: check.removeprefix("pool:").partition(".")[0].replace("_", " ") for check in checks}
    said = list(short.values())
    names = {
        check: name if said.count(name) == 1 else check.removeprefix("pool:")
        for check, name in short.items()
    }
    return {check: "broker" if name == "redis" else name for check, name in names.items()}


@dataclass(frozen=True, slots=True)
class Program:
    """A process to start: the module that it runs, with its arguments. ``role`` says when it is ended."""

    name: str
    role: str
    arguments: list[str]


def programs_of(deploys: Sequence[DeployConfig], configs: Sequence[Path]) -> Iterator[Program]:
    """All processes of the deploys, each of which was read from one of ``configs``."""
    yield Program("scheduler", "scheduler", ["workers.scheduler"])
    for deploy, config in zip(deploys, configs, strict=True):
        for stage in sorted(deploy.stages, key=lambda stage: stage.stage_id):
            pool = f"{stage.name}.{deploy.model}" if len(deploys) > 1 else stage.name
            for number, devices in enumerate(stage.processes, 1):
                arguments = ["workers.pool", "--stage", stage.name, "--config", str(config)]
                arguments += ["--devices", devices] if devices is not None else []
                yield Program(pool if number == 1 else f"{pool}-{number}", "pool", arguments)
    yield Program("io", "pool", ["workers.pool", "--stage", "io"])
    yield Program("api", "api", ["api.server"])


def _reason(child: Child) -> str:
    """What it said before it ended as one that cannot start."""
    said = [line for line in child.log_of_run().splitlines() if line.startswith(cannot_start.BEGINNING)]
    return said[-1].removeprefix(cannot_start.BEGINNING) if said else "it does not say why"


def check_port(settings: Settings) -> None:
    """Raises ``StartFailed`` when somebody else has the port, which would show only at the end."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server does it: a connection of an earlier server that still lingers is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise StartFailed(
                f"cannot serve at {settings.host}:{settings.port}: {os.strerror(error.errno or 0)}. "
                "Stop what uses the port, or set STAGEWAVE_PORT to another"
            ) from None
