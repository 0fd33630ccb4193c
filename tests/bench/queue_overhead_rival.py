"""The worker of the bare Celery rival in ``queue_overhead``."""

from __future__ import annotations

import os

from tests.bench.queue_overhead import BARE_TASK, _bare_app
from workers.broker import connect

if __name__ == "__main__":
    url = os.environ["BARE_URL"]
    app, client = _bare_app(url), connect(url)

    def ran() -> None:
        client.incr("bare:ran")

    app.task(name=BARE_TASK)(ran)
    app.Worker(
        pool="threads", concurrency=8, queues=["bare"], without_mingle=True, without_gossip=True, quiet=True
    ).start()
