"""``stagewave listen``: the audio of a job, live while it is made."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stagewave.audio_file import save_audio
from stagewave.client.jobs import AudioFormat
from stagewave.connection import connect, server_options
from workers.settings import Settings


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file; without it, stdout.")
@click.option("--format", "audio_format", type=click.Choice(["wav", "pcm", "flac", "mp3", "opus"]))
@server_options
@click.pass_obj
def listen(
    settings: Settings,
    job_id: str,
    out: Path | None,
    audio_format: AudioFormat | None,
    url: str | None,
    api_key: str | None,
) -> None:
    """Write a job's audio to a file or to stdout, from its start, as it is made.

    To hear it: stagewave listen JOB | ffplay -nodisp -autoexit -
    """
    if out is None and sys.stdout.isatty():
        raise click.UsageError("Audio does not go to a terminal: give --out FILE, or pipe it to a player.")
    with connect(settings, url, api_key) as client:
        pieces = client.listen(job_id, format=audio_format)
        if out is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
        else:
            click.echo(f"{out}: {save_audio(pieces, out)} bytes", err=True)
