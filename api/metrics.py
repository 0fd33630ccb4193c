"""What Prometheus scrapes of the queue, as the broker counts it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.waiting_room import WaitingRoom
from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import StagewaveError
from workers.backend import Backend
from workers.broker import broker_time
from workers.states import pools_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_JOB_BUCKETS_MS = (50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000)
"""As the broker's scripts count them (workers/lua/prelude.lua)."""
_JOB_SECONDS = {
    "queue_wait": "From POST to the start of the first stage.",
    "ttfp": "From POST to the first packet of audio (TTFP).",
    "e2e": "From POST to the end of the job (E2E).",
}


class QueueCollector(Collector):
    """Read from the broker at each scrape, so that every API process tells the same. While the broker
    is away there is only ``stagewave_broker_up 0``."""

    def __init__(self, backend: Backend, deploys: Sequence[DeployConfig], room: WaitingRoom) -> None:
        self._backend = backend
        self._deploys = deploys
        self._room = room

    def describe(self) -> list[Metric]:
        return []  # what there is depends on the broker: nothing is promised when registering

    def collect(self) -> Iterator[Metric]:
        yield _gauge("stagewave_api_waiters", "Requests that wait or listen.", self._room.taken)
        yield _gauge("stagewave_api_waiters_limit", "Most that may.", self._room.limit)
        try:
            metrics = [*self._queue(), *self._workers(), *self._totals()]
        except StagewaveError:
            metrics = []
        yield _gauge("stagewave_broker_up", "Whether the broker answers.", 1 if metrics else 0)
        yield from metrics

    def _queue(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("stagewave_queue_depth", "Jobs ready and waiting.", labels=["pool"])
        for pool, ready in self._backend.counts.queue_depths(pools_of(self._deploys)).items():
            depth.add_metric([pool], ready)
        yield depth
        jobs = GaugeMetricFamily("stagewave_jobs", "Jobs kept, by status.", labels=["status"])
        for status, kept in self._backend.counts.by_status().items():
            jobs.add_metric([status], kept)
        yield jobs

    def _workers(self) -> Iterator[Metric]:
        labels = ["pool", "worker", "state"]
        slots = GaugeMetricFamily("stagewave_worker_slots", "Jobs a worker runs at most.", labels=labels)
        running = GaugeMetricFamily("stagewave_worker_running", "Jobs it runs now.", labels=labels)
        silent = GaugeMetricFamily("stagewave_worker_silent_seconds", "Since it was seen.", labels=labels)
        now = broker_time(self._backend.client)
        for worker in self._backend.pools.workers():
            values = [worker.pool, worker.worker_id, worker.state]
            slots.add_metric(values, worker.concurrency)
            running.add_metric(values, worker.running)
            silent.add_metric(values, max(0.0, now - worker.seen_at))
        yield from (slots, running, silent)

    def _totals(self) -> Iterator[Metric]:
        ended = _counter("stagewave_jobs_ended", "Jobs ended.", "type", "status")
        lost = _counter("stagewave_attempts_lost", "Attempts whose worker died.", "stage")
        sent = _counter("stagewave_webhook_tries", "Webhooks sent, by what came of it.", "state")
        timed: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for name, total in self._backend.counts.totals().items():
            match name.split("|"):
                case ["jobs", job_type, status]:
                    ended.add_metric([job_type, status], total)
                case ["lost", stage]:
                    lost.add_metric([stage], total)
                case ["webhooks", state]:
                    sent.add_metric([state], total)
                case [measure, job_type, part] if measure in _JOB_SECONDS:
                    timed[measure, job_type][part] = total
        yield from (ended, lost, sent)
        for measure, meaning in _JOB_SECONDS.items():
            family = HistogramMetricFamily(f"stagewave_job_{measure}_seconds", meaning, labels=["type"])
            for (name, job_type), parts in timed.items():
                if name == measure:
                    family.add_metric([job_type], _cumulated(parts), parts.get("sum", 0) / 1000)
            yield family


def exposition(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _counter(name: str, meaning: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, meaning, labels=labels)


def _cumulated(parts: dict[str, int]) -> list[tuple[str, float]]:
    buckets, so_far = [], 0
    for bound in _JOB_BUCKETS_MS:
        so_far += parts.get(str(bound), 0)
        buckets.append((str(bound / 1000), float(so_far)))
    return [*buckets, ("+Inf", float(parts.get("count", so_far)))]
