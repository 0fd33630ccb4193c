"""What the command prints: results on stdout, for a person or as JSON; all else on stderr."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stagewave.record import Job, JsonObject

STYLES = {"succeeded": "green", "failed": "red", "canceled": "yellow", "running": "cyan", "queued": "blue"}


def print_json(value: JsonObject) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_jobs(page: Sequence[Job], following: str | None) -> None:
    """One line a job; where the next page is goes to stderr."""
    console = Console()
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in ("job", "type", "status", "created", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", no_wrap=True)
    for job in page:
        status = f"{job.status} {job.stage}" if job.status == "running" else job.status
        created = str(job.record["created_at"])[:16].replace("T", " ")
        took = seconds(job.timings.get("e2e_ms"))
        table.add_row(job.id, job.type, Text(status, STYLES.get(job.status, "")), created, took)
    console.print(table)
    if following:
        click.echo(f"more: stagewave jobs --after {following}", err=True)


def print_job(job: Job) -> None:
    """What a person wants to know of one job."""
    rows = [("job", job.id), ("type", job.type), ("status", job.status), ("stage", job.stage or "")]
    result = job.record["result"] or {}
    if job.error:
        rows.append(("error", f"{job.error['message']} ({job.error['code']})"))
    rows += [("language", result.get("language") or ""), ("heard", result.get("source_text") or "")]
    rows.append(("text", job.text))
    if audio := result.get("audio"):
        rows.append(
            ("audio", f"{audio['duration_s']:.2f} s {audio['format']}, {audio['size_bytes']} bytes")
        )
    timings = job.timings
    rows += [
        ("waited", seconds(timings.get("queue_wait_ms"))),
        ("first audio", seconds(timings.get("ttfp_ms"))),
    ]
    rows += [("took", seconds(timings.get("e2e_ms")))]
    for name, value in rows:
        if value:
            click.echo(f"{name:<12}{value}")


def seconds(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds / 1000:.2f}"
