"""``stagewave batch``: folders of recordings, tables of texts and files of requests through the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from stagewave import exits
from stagewave.batch.display import Display, print_summary, summary_of
from stagewave.batch.failures import NAME, Failures, Form
from stagewave.batch.item import Found
from stagewave.batch.outputs import check_folder
from stagewave.batch.requests import Requests
from stagewave.batch.runner import Runner
from stagewave.batch.spoken_files import FailedFiles, SpokenFiles, failed_file
from stagewave.batch.tally import Tally
from stagewave.batch.texts import Texts, failed_line
from stagewave.batch.work import Work, save_audio, save_transcript
from stagewave.client.jobs import AudioFormat, JobOptions, TranscriptFormat
from stagewave.connection import connect, connect_async, server_options
from stagewave.output import print_json
from workers.settings import Settings

Command = TypeVar("Command", bound=Callable[..., object])

PATIENCE_S = 120.0
"""How long a run bears a server that is away, or a queue that is full."""
EXTENSIONS = {"text": "txt", "json": "json", "srt": "srt", "vtt": "vtt"}


@click.group()
def batch() -> None:
    """Many files or lines at a time.

    Run the same command again after Ctrl-C, a crash or a failure: it goes on where it had come to.

    Exit codes: 0 all is done, 1 some failed (failures.jsonl has them), 130 interrupted.
    """


def run_options(command: Command) -> Command:
    """The options of a run on this machine."""
    for option in (
        click.option(
            "--parallel",
            type=click.IntRange(1, 256),
            default=16,
            show_default=True,
            help="Jobs under way at a time.",
        ),
        click.option(
            "--priority",
            type=click.IntRange(-10, 10),
            default=-5,
            show_default=True,
            help="Below 0, other jobs go first.",
        ),
        click.option("--model", help="Unset: the one that the server has for this."),
        click.option("--overwrite", is_flag=True, help="Also what has its output already."),
        click.option("--json", "as_json", is_flag=True, help="The summary as JSON."),
    ):
        command = option(command)
    return server_options(command)


@batch.command()
@click.argument("sources", nargs=-1, metavar="FOLDER|FILE|s3://…")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where transcripts go, in folders like the sources'; by default beside them.",
)
@click.option("--format", "form", type=click.Choice(list(EXTENSIONS)), default="text", show_default=True)
@click.option("--language", help="Of the speech, such as en; without it, recognised.")
@click.option("--word-timestamps", is_flag=True)
@click.option(
    "--from",
    "failures_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The failures.jsonl of an earlier run, instead of sources.",
)
@run_options
@click.pass_obj
def asr(
    settings: Settings,
    /,
    sources: tuple[str, ...],
    out: Path | None,
    form: TranscriptFormat,
    language: str | None,
    word_timestamps: bool,
    failures_path: Path | None,
    **options: Any,  # noqa: ANN401  # click's
) -> int:
    """Recognise all the recordings in folders, or behind an s3:// prefix."""
    if bool(sources) == bool(failures_path):
        raise click.UsageError("Give folders or files, or --from failures.jsonl.")
    items: Iterable[Found]
    if failures_path is not None:
        items = FailedFiles(failures_path)
    else:
        items = SpokenFiles(sources, out, EXTENSIONS[form], settings)
    asked: JobOptions = {"language": language, "word_timestamps": word_timestamps or None}
    work = Work("asr", asked | _common(options), save_transcript(form))
    return _run(settings, "recognising", work, items, out or Path(), failures_path, failed_file, **options)


@batch.command()
@click.argument("lines", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--voice", help="Of lines that name none.")
@click.option("--language", help="Of lines that name none.")
@click.option("--instructions", help="How to speak, in words; not every engine heeds it.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["wav", "pcm", "flac", "mp3", "opus"]),
    default="wav",
    show_default=True,
)
@run_options
@click.pass_obj
def tts(
    settings: Settings,
    /,
    lines: Path,
    out: Path,
    voice: str | None,
    language: str | None,
    instructions: str | None,
    form: AudioFormat,
    **options: Any,  # noqa: ANN401  # click's
) -> int:
    """Speak a text for each line of a file, in UTF-8.

    LINES is .csv (its first line names the columns: text and, as wanted, id, voice, language, instructions,
    seed), .jsonl (the same as fields), or else plain text. An id names the line's output; without one, its
    number does.
    """
    asked: JobOptions = {"voice": voice, "language": language, "instructions": instructions}
    asked["response_format"] = form
    work = Work("tts", asked | _common(options), save_audio)
    return _run(settings, "speaking", work, Texts(lines, out, form), out, lines, failed_line, **options)


@batch.command()
@click.argument("requests", metavar="JOBS.jsonl|s3://…")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="By default, here."
)
@click.option("--priority", type=click.IntRange(-10, 10))
@click.option("--json", "as_json", is_flag=True, help="The batch's record.")
@server_options
@click.pass_obj
def run(
    settings: Settings,
    requests: str,
    out: Path,
    priority: int | None,
    as_json: bool,
    url: str | None,
    api_key: str | None,
) -> int:
    """Make a batch of a file of requests, and wait for it.

    What becomes of them is in output.jsonl and errors.jsonl; failures.jsonl has the lines that failed, to
    be run again. After Ctrl-C the server goes on with the batch, and the same command follows it again.
    """
    check_folder(out)
    asked = Requests(requests, out, settings)
    tally = Tally()

    async def follow() -> int:
        async with connect_async(settings, url, api_key, PATIENCE_S) as client:
            made = await asked.make(client, {"priority": priority} if priority is not None else {})
            click.echo(f"{made.id}", err=True)
            async with Display(Console(stderr=True), "running", tally).shown():
                made = await asked.follow(client, made, tally)
            await asked.fetch(client, made, tally)
        for error in (made.record["errors"] or {}).get("data", ()):
            click.echo(f"the batch failed: {error['message']} ({error['code']})", err=True)
        print_json(made.record) if as_json else print_summary(Console(), tally)
        return exits.OK if made.status == "completed" and not tally.failed else exits.FAILED

    try:
        return asyncio.run(follow())
    except KeyboardInterrupt:
        click.echo("the server goes on with it; the same command follows it again", err=True)
        raise


def _common(options: dict[str, Any]) -> JobOptions:
    """The fields of every job, out of the options of a run."""
    return {"priority": options.pop("priority"), "model": options.pop("model")}


def _run(
    settings: Settings,
    title: str,
    work: Work,
    items: Iterable[Found],
    out: Path,
    read: Path | None,
    form: Form,
    *,
    url: str | None,
    api_key: str | None,
    parallel: int,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Run all of it, and tell how it went, also when it ends half way. ``read`` is what the items are read
    from: until all of it has been looked at, it stays as it is."""
    with connect(settings, url, api_key) as client:
        client.jobs_page(limit=1)  # whoever has no server, or no key to it, would rather know at once
    check_folder(out)
    kept = out / NAME
    fed_back = read is not None and kept.resolve() == read.resolve()
    tally, failures = Tally(), Failures(form, kept, fed_back=fed_back)
    display = Display(Console(stderr=True), title, tally)
    runner = Runner(work, items, tally, failures, overwrite=overwrite)

    async def go() -> None:
        async with connect_async(settings, url, api_key, PATIENCE_S) as client:
            await runner.run(client, parallel, display)

    try:
        asyncio.run(go())
    except BaseException:
        if tally.seen and not fed_back:
            failures.keep()
        click.echo("stopped; the same command goes on from here", err=True)
        raise
    finally:
        print_json(summary_of(tally)) if as_json else print_summary(Console(), tally)
    failures.keep()
    if failures.count:
        click.echo(f"what failed is in {kept}", err=True)
    return exits.FAILED if failures.count else exits.OK
