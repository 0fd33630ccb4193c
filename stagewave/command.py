"""The ``stagewave`` command: its subcommands, and its one way to fail."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from stagewave import exits
from stagewave.errors import ClientError, LocalError, Unreachable
from workers.settings import SettingsError, load_settings

MODULES = {
    "up": "up",
    "demo": "demo",
    "doctor": "doctor",
    "config": "config",
    "health": "health",
    "submit": "submit",
    "batch": "batch",
    "jobs": "jobs",
    "get": "jobs",
    "listen": "listen",
    "cancel": "jobs",
    "api": "serve",
    "worker": "serve",
    "scheduler": "serve",
}
"""The module of ``stagewave.commands`` in which each subcommand is."""


class Subcommands(click.Group):
    """Loads only the subcommand that is used: one that asks a server loads nothing that starts one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        command = getattr(import_module(f"stagewave.commands.{MODULES[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101  # MODULES says so
        return command


@click.command(
    cls=Subcommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the job failed, 2 wrong use, 3 no server, 4 no such job, 5 refused.",
)
@click.pass_context
def stagewave(context: click.Context) -> None:
    """Speech jobs: recognise, speak, and say again in another voice.

    `stagewave up` serves; the other commands talk to a server. Settings come from STAGEWAVE_* variables.
    """
    context.obj = load_settings(os.environ)


def run() -> int:
    """Runs the command; whatever goes wrong is one line on stderr and an exit code, never a traceback."""
    try:
        return stagewave.main(prog_name="stagewave", standalone_mode=False) or exits.OK
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; Python must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except SettingsError as error:
        return _fail(error, exits.USAGE)
    except UnicodeError:
        return _fail("a key or a text has characters that cannot be sent", exits.USAGE)
    except Unreachable as error:
        return _fail(f"{error}; `stagewave up` starts one", error.exit_code)
    except (ClientError, LocalError) as error:
        return _fail(error, error.exit_code)
    except OSError as error:
        return _fail(f"{error.filename or 'file'}: {error.strerror or error}", exits.USAGE)


def _fail(error: object, code: int) -> int:
    click.echo(f"stagewave: {error}", err=True)
    return code
