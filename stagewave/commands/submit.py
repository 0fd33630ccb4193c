"""``stagewave submit``: make a job, and wait for it when asked to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape

from stagewave import exits
from stagewave.audio_file import save_audio
from stagewave.client import Client
from stagewave.client.jobs import TranscriptFormat
from stagewave.connection import connect, server_options
from stagewave.output import print_json
from stagewave.record import Job
from workers.settings import Settings

Command = TypeVar("Command", bound=Callable[..., object])


@click.group()
def submit() -> None:
    """Make a job. stdout gets its id, or with --wait its transcript."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to do once the job is made."""

    wait: bool
    out: Path | None
    as_json: bool
    url: str | None
    api_key: str | None


def job_options(command: Command) -> Command:
    """The options that every kind of job has."""
    for option in (
        click.option("--wait", is_flag=True, help="Until the job has ended; exit code 1 when it failed."),
        click.option(
            "--out", type=click.Path(dir_okay=False, path_type=Path), help="Wait, and save the result here."
        ),
        click.option("--priority", type=click.IntRange(-10, 10), help="Higher goes first."),
        click.option(
            "--idempotency-key", metavar="KEY", help="The same key makes one job, however often sent."
        ),
        click.option("--json", "as_json", is_flag=True, help="The job's record."),
    ):
        command = option(command)
    return server_options(command)


speech_options = (
    click.option("--voice"),
    click.option("--format", "response_format", type=click.Choice(["wav", "pcm", "flac", "mp3", "opus"])),
    click.option("--live", is_flag=True, help="Stream between the stages: sooner heard, more work."),
)


def spoken(command: Command) -> Command:
    """The options of a job that speaks."""
    for option in speech_options:
        command = option(command)
    return command


@submit.command()
@click.argument("audio", metavar="FILE|URL")
@click.option("--language", help="Of the speech, such as en; without it, recognised.")
@click.option("--word-timestamps", is_flag=True)
@click.option(
    "--format", "transcript_format", type=click.Choice(["text", "json", "srt", "vtt"]), default="text"
)
@job_options
@click.pass_obj
def asr(settings: Settings, /, audio: str, transcript_format: TranscriptFormat, **options: Any) -> int:  # noqa: ANN401  # click's
    """Recognise speech."""
    wanted, fields = _split(options)
    with connect(settings, wanted.url, wanted.api_key) as client:
        job = client.submit("asr", audio=_source(audio), **fields)
        if not wanted.wait:
            return _print_made(job, wanted)
        job = wait_showing(client, job)
        if not job.succeeded or (wanted.as_json and wanted.out is None):
            return _print_ended(job, wanted)
        transcript = client.transcript(job.id, format=transcript_format)
    if wanted.out is not None:
        wanted.out.write_bytes(transcript)
        return _print_ended(job, wanted)
    click.echo(transcript.decode().rstrip("\n"))
    return exits.OK


@submit.command()
@click.argument("text", metavar="TEXT|-")
@click.option("--instructions", help="How to speak, in words; not every engine heeds it.")
@spoken
@job_options
@click.pass_obj
def tts(settings: Settings, /, text: str, **options: Any) -> int:  # noqa: ANN401  # click's
    """Speak a text; - reads it from stdin."""
    wanted, fields = _split(options)
    if text == "-":
        text = sys.stdin.read()
    with connect(settings, wanted.url, wanted.api_key) as client:
        return _speak(client, client.submit("tts", text=text, **fields), wanted)


@submit.command()
@click.argument("audio", metavar="FILE|URL")
@click.option("--language", help="Of the speech, such as fr; without it, recognised.")
@click.option("--target-language", help="To say it in; the embedded engine knows en.")
@spoken
@job_options
@click.pass_obj
def s2st(settings: Settings, /, audio: str, **options: Any) -> int:  # noqa: ANN401  # click's
    """Say a recording again in the system's voice, in another language when asked."""
    wanted, fields = _split(options)
    with connect(settings, wanted.url, wanted.api_key) as client:
        return _speak(client, client.submit("s2st", audio=_source(audio), **fields), wanted)


def wait_showing(client: Client, job: Job) -> Job:
    """The job once it has ended; meanwhile a terminal shows what it is doing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return client.wait(job.id)
    doing, said = "queued", ""
    with console.status(doing) as status:
        for event in client.events(job.id):
            doing = str(event.data.get("stage") or event.data.get("status") or doing)
            said += str(event.data.get("text", "")) if event.name == "text" else ""
            share = event.data.get("share")
            percent = f" {share:.0%}" if isinstance(share, float) else ""
            # Text of a job may hold what rich would take for markup.
            status.update(escape(f"{doing}{percent}  {said.strip()[-60:]}"))
    return client.get(job.id)


def _split(options: dict[str, Any]) -> tuple[Wanted, dict[str, Any]]:
    """What to do with the job, and the fields of the request. An option not given is left out."""
    names = ("wait", "out", "as_json", "url", "api_key")
    wanted = Wanted(**{name: options.pop(name) for name in names})
    if wanted.out is not None:
        if not wanted.out.absolute().parent.is_dir():
            # Not found out only when the job has been made and waited for.
            raise click.UsageError(f"--out {wanted.out}: there is no such folder to save in.")
        wanted = Wanted(True, wanted.out, wanted.as_json, wanted.url, wanted.api_key)
    return wanted, {
        name: value for name, value in options.items() if value is not None and value is not False
    }


def _source(audio: str) -> Path | str:
    """A URL as it is; anything else is a file, and must be there."""
    if audio.startswith(("http://", "https://", "data:", "s3://")):
        return audio
    path = Path(audio)
    if not path.is_file():
        raise click.UsageError(f"{audio} is no file, and no http, https, data or s3 URL.")
    return path


def _speak(client: Client, job: Job, wanted: Wanted) -> int:
    if not wanted.wait:
        return _print_made(job, wanted)
    job = wait_showing(client, job)
    if job.succeeded and wanted.out is not None:
        save_audio(client.listen(job.id), wanted.out)
    return _print_ended(job, wanted)


def _print_made(job: Job, wanted: Wanted) -> int:
    print_json(job.record) if wanted.as_json else click.echo(job.id)
    return exits.OK


def _print_ended(job: Job, wanted: Wanted) -> int:
    if wanted.as_json:
        print_json(job.record)
    elif job.succeeded:
        if job.text:
            click.echo(job.text)
    if job.error:
        click.echo(f"stagewave: {job.type} failed: {job.error['message']} ({job.error['code']})", err=True)
    elif not job.succeeded:
        click.echo(f"stagewave: {job.id} was {job.status}", err=True)
    elif wanted.out is not None and not wanted.as_json:
        click.echo(f"saved in {wanted.out}", err=True)
    return exits.OK if job.succeeded else exits.FAILED
