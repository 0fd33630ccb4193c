"""``stagewave jobs``, ``get`` and ``cancel``."""

from __future__ import annotations

import click

from stagewave import exits
from stagewave.client.jobs import JobStatus, JobType
from stagewave.connection import connect, server_options
from stagewave.output import print_job, print_jobs, print_json
from workers.settings import Settings


@click.command()
@click.option("--status", type=click.Choice(["queued", "running", "succeeded", "failed", "canceled"]))
@click.option("--type", "kind", type=click.Choice(["asr", "tts", "s2st"]))
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@click.option("--after", metavar="CURSOR", help="The next page: what the page before said.")
@click.option("--json", "as_json", is_flag=True)
@server_options
@click.pass_obj
def jobs(
    settings: Settings,
    status: JobStatus | None,
    kind: JobType | None,
    limit: int,
    after: str | None,
    as_json: bool,
    url: str | None,
    api_key: str | None,
) -> None:
    """List jobs, newest first."""
    with connect(settings, url, api_key) as client:
        page = client.jobs_page(status=status, type=kind, limit=limit, after=after)
    if as_json:
        print_json({"data": [job.record for job in page.items], "next_cursor": page.next_cursor})
    else:
        print_jobs(page.items, page.next_cursor)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Until the job has ended; exit code 1 when it failed.")
@click.option("--json", "as_json", is_flag=True)
@server_options
@click.pass_obj
def get(
    settings: Settings, job_id: str, wait: bool, as_json: bool, url: str | None, api_key: str | None
) -> int:
    """Show one job."""
    with connect(settings, url, api_key) as client:
        job = client.wait(job_id) if wait else client.get(job_id)
    print_json(job.record) if as_json else print_job(job)
    return exits.FAILED if wait and not job.succeeded else exits.OK


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True)
@server_options
@click.pass_obj
def cancel(settings: Settings, job_id: str, as_json: bool, url: str | None, api_key: str | None) -> None:
    """Cancel a job that is queued or running."""
    with connect(settings, url, api_key) as client:
        job = client.cancel(job_id)
    print_json(job.record) if as_json else print_job(job)
