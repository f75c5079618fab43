"""Metrics for Prometheus: requests, images, batches, the queue."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class ServiceMetrics:
    """The metrics of one service, in its own registry."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, num_waiting: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "kmcl_requests_total", "Requests answered", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "kmcl_request_seconds",
            "Seconds from the header of a request to the end of its response",
            ["path"],
            buckets=LATENCIES,
            registry=self._registry,
        )
        self._batches = Histogram(
            "kmcl_batch_images", "Images per batch", buckets=BATCH_SIZES, registry=self._registry
        )
        self._model_seconds = Counter(
            "kmcl_model_seconds_total", "Seconds spent computing the model", registry=self._registry
        )
        self._images = Counter("kmcl_images_total", "Images scored", registry=self._registry)
        waiting = Gauge("kmcl_waiting_images", "Images in the queue", registry=self._registry)
        waiting.set_function(num_waiting)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """path: a route of the service, never a client's own text, which bounds the number of series."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, num_images: int, seconds: float) -> None:
        self._batches.observe(num_images)
        self._images.inc(num_images)
        self._model_seconds.inc(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)
