"""Metrics for Prometheus: requests, their time, batches, and the memory of the process."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MetricsMiddleware", "ServiceMetrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
UNKNOWN_PATH = "other"
"""Label of unknown addresses, whose number is unbounded."""


class ServiceMetrics:
    """The metrics of one service, separate from those of others in the same process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "equimetric_requests", "Requests by address, method and status", ["path", "method", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "equimetric_request_seconds", "From the first byte of a request to the last of its response", ["path"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.batches = Histogram(
            "equimetric_batch_size", "Calls that were computed together", ["work"], buckets=SIZES,
            registry=self.registry,
        )  # fmt: skip
        self.running = Gauge("equimetric_running_requests", "Requests being answered", registry=self.registry)
        self.items = Gauge("equimetric_gallery_items", "Items in the gallery", registry=self.registry)

    def observe_batch(self, work: str) -> Callable[[int], None]:
        """The callback that records the size of a batch."""
        return self.batches.labels(work).observe

    def text(self) -> bytes:
        """All figures in the format of Prometheus."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts and times requests."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and note its status and time."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self.metrics.running.track_inprogress():
            try:
                await self.app(scope, receive, note_status)
            finally:
                path = getattr(scope.get("route"), "path", UNKNOWN_PATH)
                method = scope["method"] if path != UNKNOWN_PATH else UNKNOWN_PATH
                self.metrics.requests.labels(path, method, str(status)).inc()
                self.metrics.seconds.labels(path).observe(time.perf_counter() - started)
