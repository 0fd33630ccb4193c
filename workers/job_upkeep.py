"""The moves of jobs that nobody holds: what the scheduler, the janitor and the books do. Each move of a job
is one script."""

from __future__ import annotations

from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.broker import Scripts, broker_errors, dumped, text
from workers.claim_store import failure
from workers.job_streams import JobStreams
from workers.settings import Settings
from workers.states import Stage, Status

_SWEPT_AT_ONCE = 500


class JobUpkeep:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away or full."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._scripts = Scripts(client)
        self._streams = JobStreams(client)

    def reap(self, most: int = 200) -> tuple[int, set[str]]:
        """Queue again what dead workers held, end what is past its deadline; how many, and the pools
        to ring."""
        lost = StagewaveError(ErrorCode.WORKER_LOST, "the workers of this job were lost again and again")
        late = StagewaveError(ErrorCode.DEADLINE_EXCEEDED, "the job did not end before its deadline")
        answer = cast(
            list[object],
            self._scripts.run(
                "reap",
                args=(
                    most,
                    dumped(failure(lost)),
                    dumped(failure(late)),
                    int(self._settings.job_retention_s * 1000),
                    int(self._settings.lease_s * 1000),
                    int(self._settings.webhook_longest_wait_s * 1000),
                ),
            ),
        )
        taken, pools, ended = cast(tuple[int, list[bytes], list[bytes]], answer)
        for job_id in ended:
            self._streams.drop(text(job_id))
        return taken, {text(pool) for pool in pools}

    def requeue(self, job_id: str, stage: Stage) -> str | None:
        """Put a ready stage that is in no queue back into its own; the pool to ring."""
        return text(self._scripts.run("requeue", args=(job_id, stage.value))) or None

    def reindex(self, job_id: str) -> None:
        """Name the job in the indexes where its record says it is."""
        self._scripts.run("reindex", args=(job_id, *Status))

    def forget_expired(self, before_id: str) -> int:
        """Take ids older than ``before_id`` whose records have run out from every index."""
        return sum(self._sweep(name, before_id) for name in self._index_names())

    def _index_names(self) -> list[str]:
        prefix = keys.index("")
        with broker_errors():
            found = self._client.scan_iter(match=keys.starting_with(prefix), count=1000)
            return [text(key)[len(prefix) :] for key in found]

    def _sweep(self, index: str, before_id: str) -> int:
        removed = 0
        start = "-"
        while True:
            with broker_errors():
                found = self._client.zrange(
                    keys.index(index), start, f"({before_id}", bylex=True, offset=0, num=_SWEPT_AT_ONCE
                )
                ids = cast(list[bytes], found)
                pipe = self._client.pipeline(transaction=False)
                for job_id in ids:
                    pipe.exists(keys.job(text(job_id)))
                gone = [job_id for job_id, there in zip(ids, pipe.execute(), strict=True) if not there]
                if gone:
                    removed += self._client.zrem(keys.index(index), *gone)
            if len(ids) < _SWEPT_AT_ONCE:
                return removed
            start = f"({text(ids[-1])}"
