"""``stagewave doctor``: what is missing, and how to get it; and whether the books are right."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stage_pipeline.errors import StagewaveError
from stagewave import exits
from stagewave.checkup import check_up
from stagewave.errors import ServiceAway
from stagewave.home import Home
from stagewave.output import print_json
from workers.backend import connect_backend
from workers.books import Books, Fault
from workers.settings import Settings

_SIGNS = {"ok": Text("ok", "green"), "warn": Text("warn", "yellow"), "fail": Text("fail", "bold red")}


@click.command()
@click.option(
    "--books", is_flag=True, help="Check the books of a running system instead: every job, key, object."
)
@click.option("--repair", is_flag=True, help="With --books: mend what can be mended without ending a job.")
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def doctor(settings: Settings, books: bool, repair: bool, as_json: bool) -> int:
    """Say what is missing, and how to get it. Exit code 1 when something is."""
    if books or repair:
        return _check_books(settings, repair, as_json)
    checks = list(check_up(settings))
    failed = any(check.state == "fail" for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for check in checks:
            hint = f"\n→ {check.hint}" if check.hint and check.state != "ok" else ""
            table.add_row(_SIGNS[check.state], check.name, Text(check.found + hint))
        Console().print(table)
    return exits.FAILED if failed else exits.OK


def _check_books(settings: Settings, repair: bool, as_json: bool) -> int:
    """The books of the system that runs with these settings, or of the ``up`` in this home."""
    if settings.redis_url is None:
        settings = Home(settings.home).running_settings() or settings
    if settings.redis_url is None:
        raise ServiceAway("nothing runs in this home, and STAGEWAVE_REDIS_URL is not set")
    books = Books(connect_backend(settings))
    try:
        faults = books.faults()
        mended = books.repair(faults) if repair else 0
    except StagewaveError as error:
        raise ServiceAway(error.message) from error
    if as_json:
        found = [asdict(fault) for fault in faults]
        print_json({"ok": not faults, "faults": found, "mended": mended})
    else:
        _print_faults(faults, mended)
    return exits.FAILED if len(faults) > mended else exits.OK


def _print_faults(faults: list[Fault], mended: int) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for fault in faults:
        table.add_row(_SIGNS["fail"], fault.kind, fault.subject, Text(fault.detail))
    Console().print(table if faults else Text("the books are right", "green"))
    if mended:
        Console().print(f"{mended} of {len(faults)} mended")
