"""Where a job's bytes lie in the object store. Keys hold ids and attempt numbers, never a user's text."""

from __future__ import annotations

from workers.backend import Backend
from workers.object_store import ObjectStore
from workers.voice import voice_prefix


def input_key(job_id: str) -> str:
    return f"inputs/{job_id}"


def audio_key(job_id: str, attempt: int, extension: str) -> str:
    return f"{result_prefix(job_id)}{attempt}.{extension}"


def transcript_key(job_id: str, attempt: int) -> str:
    return f"{result_prefix(job_id)}{attempt}.json"


def voiced_prefix(job_id: str, begun_by: int) -> str:
    """Where a long job's sound lies while it is made, of the tokens that this Thinker attempt began."""
    return f"{result_prefix(job_id)}voiced/{begun_by}/"


def result_prefix(job_id: str) -> str:
    return f"results/{job_id}/"


def job_of_key(key: str) -> str | None:
    """The job an object belongs to; None for an object that is not ours to remove."""
    parts = key.split("/")
    return parts[1] if len(parts) > 1 and parts[0] in ("inputs", "results") else None


def remove_objects(objects: ObjectStore, job_id: str) -> None:
    """All of a job: what it was given and what it made."""
    objects.delete(input_key(job_id))
    objects.delete_prefix(result_prefix(job_id))


def remove_voice(backend: Backend, voice_id: str) -> None:
    """All of a voice that was deleted and that no job uses."""
    backend.objects.delete_prefix(voice_prefix(voice_id))
    backend.voices.forget(voice_id)


def remove_other_attempts(objects: ObjectStore, job_id: str, kept: set[str]) -> None:
    """What attempts that did not win have left."""
    stale = [o.key for o in objects.list(result_prefix(job_id)) if o.key not in kept]
    if stale:
        objects.delete(*stale)
