"""Every Redis key, and nothing else builds one.

Job control lives under one hash tag, ``{sw}``, because a state move touches the record, the queue, the
leases, the index and the due webhooks in one atomic step. What is bulky (tokens and audio of a job) has
a tag of its own, ``{<job id>}``, so that a Redis Cluster spreads it.
"""

from __future__ import annotations

_CONTROL = "sw:{sw}:"

CONTROL_PREFIXES = {
    "job": _CONTROL + "job:",  # + job id: hash, the record
    "events": _CONTROL + "events:",  # + job id: stream, what listeners are told
    "ready": _CONTROL + "ready:",  # + pool: zset of job ids by priority, then age
    "leases": _CONTROL + "leases",  # zset "job id|stage" by the moment the lease runs out
    "deadlines": _CONTROL + "deadlines",  # zset of job ids by deadline
    "index": _CONTROL + "index:",  # + all | status:… | type:… | batch:…: zset of job ids, by name
    "idempotency": _CONTROL + "idempotency:",  # + digest: hash, the job made under a key
    "delivery": _CONTROL + "delivery:",  # + delivery id: hash, one webhook and its log
    "deliveries_of": _CONTROL + "deliveries:of:",  # + job id: list of delivery ids
    "deliveries_due": _CONTROL + "deliveries:due",  # zset of delivery ids by the moment they are due
    "voice": _CONTROL + "voice:",  # + voice id: hash, the record
    "voice_names": _CONTROL + "voice_names",  # hash: digest of model and name to voice id
    "voices": _CONTROL + "voices:",  # + model: zset of voice ids, by id
    "voices_due": _CONTROL + "voices_due:",  # + pool: zset of voice ids by the moment to prepare them
    "voices_deleted": _CONTROL + "voices_deleted",  # set of ids whose jobs have not all ended
    "voice_jobs": _CONTROL + "voice_jobs:",  # + voice id: set of jobs that use it and have not ended
    "batch": _CONTROL + "batch:",  # + batch id: hash, the record; + :lines … (lua/batch_create.lua)
    "batches": _CONTROL + "batches",  # zset of batch ids, by name
    "batches_going": _CONTROL + "batches_going",  # zset of the ids of those that have not ended, by name
    "file": _CONTROL + "file:",  # + file id: hash, the record of an uploaded or a batch's file
    "files": _CONTROL + "files:",  # + all | purpose: zset of file ids, by name
    "counts": _CONTROL + "counts",  # hash of totals since the store was made
    "finished": _CONTROL + "finished:",  # + ten-second slot: how many jobs ended in it
    "pool": _CONTROL + "pool:",  # + worker id: hash, one live worker
    "pools": _CONTROL + "pools",  # zset of worker ids by when they were last seen
    "pools_ready": _CONTROL + "pools:ready",  # zset of pools by when one of their workers was last ready
}
"""The same names stand in the Lua scripts as ``K.job`` and so on."""

LEADER = _CONTROL + "leader"
FEEDER = _CONTROL + "feeder"
CELERY_PREFIX = "sw:celery:"
JOB_TAG = "sw:{job_"
"""How the keys begin that are under a job's own tag."""


def job(job_id: str) -> str:
    return CONTROL_PREFIXES["job"] + job_id


def events(job_id: str) -> str:
    return CONTROL_PREFIXES["events"] + job_id


def ready(pool: str) -> str:
    return CONTROL_PREFIXES["ready"] + pool


def index(name: str) -> str:
    return CONTROL_PREFIXES["index"] + name


def idempotency(digest: str) -> str:
    return CONTROL_PREFIXES["idempotency"] + digest


def delivery(delivery_id: str) -> str:
    return CONTROL_PREFIXES["delivery"] + delivery_id


def deliveries_of(job_id: str) -> str:
    return CONTROL_PREFIXES["deliveries_of"] + job_id


def voice(voice_id: str) -> str:
    return CONTROL_PREFIXES["voice"] + voice_id


def voices(model: str) -> str:
    return CONTROL_PREFIXES["voices"] + model


def voices_due(pool: str) -> str:
    return CONTROL_PREFIXES["voices_due"] + pool


def voice_jobs(voice_id: str) -> str:
    return CONTROL_PREFIXES["voice_jobs"] + voice_id


def batch(batch_id: str, part: str = "") -> str:
    """The record of a batch, or one of the keys beside it."""
    return CONTROL_PREFIXES["batch"] + batch_id + (f":{part}" if part else "")


def file(file_id: str) -> str:
    return CONTROL_PREFIXES["file"] + file_id


def files(name: str) -> str:
    return CONTROL_PREFIXES["files"] + name


def starting_with(prefix: str) -> str:
    """A pattern for SCAN; the tag's braces mean nothing in one."""
    return prefix + "*"


def finished(slot: int) -> str:
    return f"{CONTROL_PREFIXES['finished']}{slot}"


def pool(worker_id: str) -> str:
    return CONTROL_PREFIXES["pool"] + worker_id


def tokens(job_id: str) -> str:
    return f"sw:{{{job_id}}}:tokens"


def tokens_head(job_id: str) -> str:
    return f"sw:{{{job_id}}}:tokens:head"


def audio(job_id: str) -> str:
    return f"sw:{{{job_id}}}:audio"


def audio_head(job_id: str) -> str:
    return f"sw:{{{job_id}}}:audio:head"


def bells(pool: str) -> str:
    """The list behind a pool's Celery queue."""
    return CELERY_PREFIX + pool
