"""Sweeps up what nothing else removes: expired names, objects of jobs that are gone, open uploads."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ulid import ULID

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.backend import Backend
from workers.batch_output import is_awaited
from workers.job import Job
from workers.object_store import ObjectInfo
from workers.results import job_of_key, remove_voice
from workers.voice import voice_of_key

_log = logging.getLogger(__name__)

GRACE_S = 3600.0
"""Younger objects are left alone: their job may be about to be made, or to end."""


class Janitor:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def sweep(self, now: float, grace_s: float = GRACE_S) -> None:
        """``now``: Unix seconds. Safe to run at any time, by any number of processes."""
        names = self._backend.upkeep.forget_expired(_id_at(now))
        names += self._backend.batches.forget_expired() + self._backend.files.forget_expired()
        uploads = self._backend.objects.abort_stale_uploads(grace_s, now)
        objects = 0
        for voice_id in self._backend.voices.unused():
            remove_voice(self._backend, voice_id)
        for key in self.orphans(now, grace_s):
            self._backend.objects.delete(key)
            objects += 1
        _log.info("swept", extra={"names": names, "objects": objects, "uploads": uploads})

    def orphans(self, now: float, grace_s: float = GRACE_S) -> Iterator[str]:
        """Keys of objects older than ``grace_s`` that belong to no job, voice, file or batch."""
        for prefix in ("inputs/", "results/"):
            for item in self._backend.objects.list(prefix):
                if now - item.modified > grace_s and self._is_orphan(item):
                    yield item.key
        for item in self._backend.objects.list("voices/"):
            voice_id = voice_of_key(item.key)
            if now - item.modified > grace_s and voice_id and not self._backend.voices.exists(voice_id):
                yield item.key

        for item in self._backend.objects.list("files/"):
            if now - item.modified > grace_s and not self._backend.files.exists(item.key.split("/")[1]):
                yield item.key
        for item in self._backend.objects.list("batches/"):
            if now - item.modified > grace_s and not is_awaited(self._backend, item.key):
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
