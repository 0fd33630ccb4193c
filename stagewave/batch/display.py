"""What a person sees of a run: a bar on a terminal, lines elsewhere, and a table at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from stagewave.batch.item import Failure, shown
from stagewave.batch.tally import Tally

PLAIN_S = 10.0
"""Without a terminal, a line this often."""
_MOVES_S = 0.25
_FAILURES_SHOWN = 20


class Display:
    """Of one run, on stderr; ``title`` is what it does."""

    def __init__(self, console: Console, title: str, tally: Tally) -> None:
        self._console = console
        self._title = title
        self._tally = tally

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """While in here it moves by itself."""
        moving = asyncio.create_task(self._bar() if self._console.is_terminal else self._lines())
        try:
            yield
        finally:
            moving.cancel()
            with suppress(asyncio.CancelledError):
                await moving

    def failed(self, failure: Failure) -> None:
        """One line for each of the first failures; ``failures.jsonl`` has them all."""
        if self._tally.failed <= _FAILURES_SHOWN:
            self._say(f"failed: {shown(failure.source)}: {failure.message} ({failure.code})")
        if self._tally.failed == _FAILURES_SHOWN:
            self._say("… further failures are not shown here")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def _bar(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn(self._title),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(self._title, total=None, pace="")
            while True:
                tally = self._tally
                progress.update(task, total=tally.total, completed=tally.seen, pace=self._pace())
                await asyncio.sleep(_MOVES_S)

    async def _lines(self) -> None:
        while True:
            await asyncio.sleep(PLAIN_S)
            total = "" if self._tally.total is None else f" of {self._tally.total}"
            self._say(f"{self._title}: {self._tally.seen}{total}, {self._pace()}")

    def _pace(self) -> str:
        tally = self._tally
        eta = "" if tally.eta_s is None else f", {clock(tally.eta_s)} left"
        return f"{tally.rate:.1f}/s, {tally.failed} failed{eta}"


def print_summary(console: Console, tally: Tally) -> None:
    """The table at the end."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("done", str(tally.done), f"in {clock(tally.took_s)}, {tally.done / tally.took_s:.2f}/s")
    if tally.audio_s:
        pace = f"{tally.audio_s / tally.took_s:.1f} times as fast as it plays"
        table.add_row("audio", clock(tally.audio_s), pace)
    if tally.skipped:
        table.add_row("skipped", str(tally.skipped), "had their output")
    if tally.passed_over:
        table.add_row("passed over", str(tally.passed_over), "no recordings by their names")
    for code, count in tally.failures.most_common():
        table.add_row("failed", str(count), code)
    console.print(table)


def summary_of(tally: Tally) -> dict[str, object]:
    """The same for programs."""
    return {
        "done": tally.done,
        "skipped": tally.skipped,
        "passed_over": tally.passed_over,
        "failed": dict(tally.failures),
        "audio_s": round(tally.audio_s, 3),
        "took_s": round(tally.took_s, 3),
    }


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
