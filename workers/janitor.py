"""Sweeps up what nothing else removes: expired names, objects of jobs that are gone, open uploads."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ulid import ULID

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.backend import Backend
from workers.job import Job
from workers.object_store import ObjectInfo
from workers.results import job_of_key

_log = logging.getLogger(__name__)

GRACE_S = 3600.0
"""Younger objects are left alone: their job may be about to be made, or to end."""


class Janitor:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def sweep(self, now: float, grace_s: float = GRACE_S) -> None:
        """``now``: Unix seconds. Safe to run at any time, by any number of processes."""
        names = self._backend.jobs.forget_expired(_id_at(now))
        uploads = self._backend.objects.abort_stale_uploads(grace_s, now)
        objects = 0
        for key in self.orphans(now, grace_s):
            self._backend.objects.delete(key)
            objects += 1
        _log.info("swept", extra={"names": names, "objects": objects, "uploads": uploads})

    def orphans(self, now: float, grace_s: float = GRACE_S) -> Iterator[str]:
        """Keys of objects older than ``grace_s`` that belong to no job."""
        for prefix in ("inputs/", "results/"):
            for item in self._backend.objects.list(prefix):
                if now - item.modified > grace_s and self._is_orphan(item):
                    yield item.key

    def _is_orphan(self, item: ObjectInfo) -> bool:
        job_id = job_of_key(item.key)
        if job_id is None:
            return False
        job = self._job(job_id)
        if job is None:
            return True
        if item.key.startswith("inputs/") or not job.status.terminal:
            return False
        result = job.result or {}
        return item.key not in (result.get("audio_key"), result.get("transcript_key"))

    def _job(self, job_id: str) -> Job | None:
        try:
            return self._backend.jobs.get(job_id)
        except StagewaveError as error:
            if error.code in (ErrorCode.NOT_FOUND, ErrorCode.GONE):
                return None
            raise


def _id_at(moment: float) -> str:
    """A job id that sorts after every job made up to ``moment``."""
    return f"job_{ULID.from_timestamp(moment + 0.001)}"
