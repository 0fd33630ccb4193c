"""How long this process takes to answer, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


class HttpMetrics:
    """Until an answer began, by route template and status; requests that chose to wait stand apart."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "stagewave_http_request_seconds",
            "Seconds until an answer began.",
            ("route", "method", "status", "waited"),
            buckets=_BUCKETS_S,
            registry=registry,
        )

    def observe(self, route: str, method: str, status: int, waited: bool, seconds: float) -> None:
        # A method is free text in HTTP: an unknown one must not make a series of its own.
        shown = method if method in _METHODS else "other"
        self._seconds.labels(route, shown, str(status), "yes" if waited else "no").observe(seconds)
