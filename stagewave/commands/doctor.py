"""``stagewave doctor``: what is there, what is missing, and how to get it."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stagewave import exits
from stagewave.checkup import check_up
from stagewave.output import print_json
from workers.settings import Settings

_SIGNS = {"ok": Text("ok", "green"), "warn": Text("warn", "yellow"), "fail": Text("fail", "bold red")}


@click.command()
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def doctor(settings: Settings, as_json: bool) -> int:
    """Say what is missing, and how to get it. Exit code 1 when something is."""
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
