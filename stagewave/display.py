"""What a person sees while Stagewave starts: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_S = 10.0
"""Without a terminal, a line this often says that the start goes on."""


class StartDisplay:
    """Shows which parts are ready. ``say`` prints a line above what moves."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._waiting = ""
        self._waited_at = 0.0

    @contextmanager
    def shown(self, title: str) -> Iterator[None]:
        """While in here, ``update`` moves the display."""
        if not self._console.is_terminal:
            self.say(title)
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as self._progress:
            self._progress.add_task(title, total=None)
            yield
        self._progress = None

    def update(self, parts: Mapping[str, bool]) -> None:
        """``parts``: what there is to wait for, and whether it is ready."""
        waiting = [name for name, ready in parts.items() if not ready]
        text = f"waiting for {', '.join(waiting)}" if waiting else "ready"
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(
                task, description=text, total=len(parts), completed=len(parts) - len(waiting)
            )
        elif text != self._waiting or time.monotonic() - self._waited_at > PLAIN_S:
            self._waiting, self._waited_at = text, time.monotonic()
            self.say(text)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
