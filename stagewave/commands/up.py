"""``stagewave up``: all of Stagewave on this machine, until Ctrl-C."""

from __future__ import annotations

import shlex

import click
from rich.console import Console

from stagewave.connection import local_url
from stagewave.deploy_options import deploy_options
from stagewave.display import StartDisplay
from stagewave.signals import on_stop_signal
from stagewave.supervisor import Supervisor
from workers.settings import Settings


@click.command()
@deploy_options
def up(settings: Settings) -> None:
    """Run all of Stagewave on this machine until Ctrl-C: one deploy, or several side by side.

    Jobs and audio stay in the home folder (STAGEWAVE_HOME, by default .stagewave), and are there again the
    next time.
    """
    display = StartDisplay(Console())
    supervisor = Supervisor(settings, display.say)

    def ask() -> None:
        supervisor.stopping = True

    with on_stop_signal(ask):
        try:
            with display.shown("starting Stagewave"):
                supervisor.start()
                supervisor.wait_ready(display.update)
            if not supervisor.stopping:
                _greet(supervisor, display)
            supervisor.tend_until_stopped()
            display.say("stopping …")
        finally:
            supervisor.stop()
    display.say("stopped")


def _greet(supervisor: Supervisor, display: StartDisplay) -> None:
    url = local_url(supervisor.settings)
    key = " -H 'Authorization: Bearer YOUR_KEY'" if supervisor.settings.api_keys else ""
    display.say(
        f"""Stagewave is ready at {url}

  curl -sS {url}/v1/jobs{key} -H content-type:application/json -d '{{"type":"tts","text":"Hello."}}'

  API      {url}/docs
  logs     {supervisor.home.logs}
  stop     Ctrl-C; jobs and audio stay in {shlex.quote(str(supervisor.home.path))}
"""
    )
