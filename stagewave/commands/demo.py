"""``stagewave demo``: everything once, with its figures, and nothing left behind but audio and logs."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stagewave import exits
from stagewave.client import Client
from stagewave.connection import local_url
from stagewave.demo import Demo, Done, StepFailed
from stagewave.display import StartDisplay
from stagewave.errors import ClientError
from stagewave.home import Home
from stagewave.recordings import fetch_recordings, has_recordings
from stagewave.signals import on_stop_signal
from stagewave.supervisor import Supervisor
from workers.settings import Settings

DATA = ("broker", "store", "logs", "audio")
"""What an earlier demo left, and a fresh one begins without; models and recordings stay."""


@click.command()
@click.pass_obj
def demo(settings: Settings) -> int:
    """Show everything: start it, speak, recognise, say again, and stop.

    Touches no other Stagewave: it has a folder of its own (demo, in the home folder) and a free port. Exit
    code 1 when anything failed.
    """
    console = Console()
    display = StartDisplay(console)
    home = settings.home.resolve() / "demo"
    settings = replace(
        settings,
        home=home,
        host="127.0.0.1",
        port=_free_port(),
        redis_url=None,
        s3_endpoint=None,
        api_keys=(),
        drain_s=0.5,  # after a Ctrl-C nobody waits for the demo's jobs
    )
    supervisor = Supervisor(settings, display.say)
    stop = _StopRequest(supervisor)
    done: list[tuple[str, Done | None]] = []
    _begin_fresh(home)
    with on_stop_signal(stop):
        try:
            if not has_recordings(home / "recordings"):
                with stop.at_once(), display.shown("fetching recordings of real speech (20 MB, once)"):
                    fetch_recordings(home / "recordings")
            with display.shown("starting Stagewave"):
                supervisor.start()
                supervisor.wait_ready(display.update)
            if not supervisor.stopping:
                display.say(f"Stagewave serves at {local_url(settings)}\n")
                with supervisor.tended(), Client(local_url(settings)) as client, stop.at_once():
                    done = _show(Demo(client, home / "recordings", home / "audio"), console)
        finally:
            display.say("stopping …")
            supervisor.stop()
    if supervisor.stopping and not done:
        return exits.INTERRUPTED
    console.print(_figures(done))
    console.print("TTFP: POST to first audio. E2E: POST to end. RTF: work over length of audio.\n")
    left = supervisor.left_running()
    console.print(f"audio in {home / 'audio'}, logs in {home / 'logs'}", highlight=False, soft_wrap=True)
    console.print(
        f"still running: {left}" if left else "stopped: nothing of it runs any more", highlight=False
    )
    return exits.FAILED if left or any(each is None for _, each in done) else exits.OK


class _StopRequest:
    """What Ctrl-C does: normally it lets the supervisor stop; within ``at_once`` it also ends the step."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._at_once = False

    def __call__(self) -> None:
        self._supervisor.stopping = True
        if self._at_once:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False


def _show(demo: Demo, console: Console) -> list[tuple[str, Done | None]]:
    """Run and tell each step. A step that failed has None; the others go on."""
    results: list[tuple[str, Done | None]] = []
    steps = demo.steps()
    for number, step in enumerate(steps, 1):
        console.print(f"[bold]{number}/{len(steps)}  {step.title}[/bold]")
        try:
            with console.status("…"):
                done = step.run()
        except (StepFailed, ClientError) as error:
            console.print(f"     failed: {error}\n", style="red", markup=False, highlight=False)
            results.append((step.title, None))
            continue
        _tell(done, console)
        results.append((step.title, done))
    return results


def _tell(done: Done, console: Console) -> None:
    result = done.job.record["result"]
    spoken = "" if done.job.type == "asr" else done.job.text
    heard = done.job.text if done.job.type == "asr" else str(result["source_text"] or "")
    lines = [("heard", heard), ("true", done.said or ""), ("spoken", spoken), ("meant", done.meant or "")]
    if done.word_error_rate is not None:
        lines.append(("errors", f"{done.word_error_rate:.1%} of the words"))
    if done.saved is not None:
        lines.append(("saved", str(done.saved)))
    for name, value in lines:
        if value:
            console.print(f"     {name:<8}{value}", markup=False, highlight=False, soft_wrap=True)
    console.print()


def _figures(done: list[tuple[str, Done | None]]) -> Table:
    table = Table()
    for column in ("job", "audio s", "TTFP ms", "E2E ms", "RTF", "WER"):
        table.add_column(column, justify="left" if column == "job" else "right", no_wrap=True)
    for title, each in done:
        if each is None:
            table.add_row(title, "failed", style="red")
            continue
        timings, usage = each.job.timings, each.job.record["usage"]
        rate = each.word_error_rate
        table.add_row(
            title,
            f"{usage.get('audio_out_s') or usage.get('audio_in_s') or 0:.1f}",
            "" if timings["ttfp_ms"] is None else f"{timings['ttfp_ms']:.0f}",
            "" if timings["e2e_ms"] is None else f"{timings['e2e_ms']:.0f}",
            "" if timings["rtf"] is None else f"{timings['rtf']:.3f}",
            "" if rate is None else f"{rate:.1%}",
        )
    return table


def _begin_fresh(folder: Path) -> None:
    """Raises ``HomeBusy`` when another demo runs."""
    home = Home(folder)
    home.lock()
    for name in DATA:
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "audio").mkdir()
    home.unlock()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
