"""The moves of jobs that nobody holds: what the scheduler, the janitor and the books do. Each move of a job
is one script."""

from __future__ import annotations

from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.broker import Scripts, broker_errors, dumped, text
from workers.claim_store import failure
from workers.id_index import IdIndex
from workers.job_streams import JobStreams
from workers.settings import Settings
from workers.states import Stage, Status


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
        return sum(index.forget_expired(before_id) for index in self._indexes())

    def _indexes(self) -> list[IdIndex]:
        with broker_errors():
            found = self._client.scan_iter(match=keys.starting_with(keys.index("")), count=1000)
            return [IdIndex(self._client, text(key), keys.job) for key in found]
