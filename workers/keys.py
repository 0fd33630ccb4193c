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
    "counts": _CONTROL + "counts",  # hash of totals since the store was made
    "finished": _CONTROL + "finished:",  # + ten-second slot: how many jobs ended in it
    "pool": _CONTROL + "pool:",  # + worker id: hash, one live worker
    "pools": _CONTROL + "pools",  # zset of worker ids by when they were last seen
}
"""The same names stand in the Lua scripts as ``K.job`` and so on."""

LEADER = _CONTROL + "leader"
CELERY_PREFIX = "sw:celery:"


def job(job_id: str) -> str:
    return CONTROL_PREFIXES["job"] + job_id


def events(job_id: str) -> str:
    return CONTROL_PREFIXES["events"] + job_id


def ready(pool: str) -> str:
    return CONTROL_PREFIXES["ready"] + pool


def index(name: str) -> str:
    return CONTROL_PREFIXES["index"] + name


def delivery(delivery_id: str) -> str:
    return CONTROL_PREFIXES["delivery"] + delivery_id


def deliveries_of(job_id: str) -> str:
    return CONTROL_PREFIXES["deliveries_of"] + job_id


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
