"""Putting a job into the queue."""

from __future__ import annotations

from workers.backend import Backend
from workers.idempotency import Idempotency
from workers.job import Job, JobSpec


def submit(
    backend: Backend, job_id: str, spec: JobSpec, idempotency: Idempotency | None = None
) -> tuple[Job, bool]:
    """Make the record and ring its first pool. False: an earlier job stands under this key.
    Raises as ``JobStore.create``."""
    job, made = backend.jobs.create(job_id, spec, idempotency=idempotency)
    if made:
        backend.bell.ring(spec.pool(spec.stages[0]))
    return job, made
