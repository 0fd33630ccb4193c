"""A benchmark's own copy of the whole system: broker, store and processes in a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stagewave.embedded_broker import EmbeddedBroker
from stagewave.embedded_store import EmbeddedStore
from tests.integration.conftest import NOOP_CONFIG, System, free_port
from workers.settings import Settings

EVERYTHING = ("api", "thinker", "token2wav", "io", "scheduler")


@contextmanager
def whole_system(config: Path | None = None) -> Iterator[System]:
    """Nothing of it runs yet but broker and store. Without ``config``: the engine that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if config is None:
            config = home / "noop.yaml"
            config.write_text(NOOP_CONFIG)
        with EmbeddedBroker(home / "broker") as broker, EmbeddedStore(home / "store", "stagewave") as store:
            settings = Settings(
                home=home,
                port=free_port(),
                config=(config,),
                redis_url=broker.url,
                s3_endpoint=store.endpoint,
                s3_access_key=store.access_key,
                s3_secret_key=store.secret_key,
            )
            system = System(settings, home)
            try:
                yield system
            finally:
                system.close()


def report(what: str, values_s: list[float]) -> None:
    ordered = sorted(values_s)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{what:46} p50 {p50 * 1000:8.2f} ms   p99 {p99 * 1000:8.2f} ms   ({len(ordered)} times)",
        flush=True,
    )
