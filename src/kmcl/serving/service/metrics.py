"""Metrics for Prometheus: requests, images, batches, the queue, and what was predicted of the last images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kmcl.evaluation.drift import Drift, PredictedImages
from kmcl.evaluation.unfamiliarity import is_unfamiliar
from kmcl.serving.service.prediction_window import PredictionWindow

LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_LABEL_SERIES = 1000
"""A model with more labels has no gauge for each of them."""


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
        self._unfamiliar: Counter | None = None
        self._findings: Gauge | None = None
        self._p_values: Gauge | None = None
        self._gauge("kmcl_waiting_images", "Images in the queue", num_waiting)

    def watch(
        self,
        window: PredictionWindow,
        labels: Sequence[str],
        has_unfamiliarity: bool,
        num_features: int = 0,
    ) -> None:
        """Gauges of what was predicted of the last images, which show drift."""
        self._gauge(
            "kmcl_window_images", "Images that the gauges of a window cover", lambda: window.num_images
        )
        if has_unfamiliarity:
            self._unfamiliar = Counter(
                "kmcl_unfamiliar_images_total",
                "Images that count as unlike the training images",
                registry=self._registry,
            )
            self._gauge(
                "kmcl_unfamiliar_share",
                "Share of unfamiliar images in the window; 0.05 for images like those of val",
                lambda: window.unfamiliar_share,
            )
        if num_features:
            means = self._feature_gauge("kmcl_feature_mean", "Mean of a summary of features in the window")
            for index in range(num_features):
                means.labels(str(index + 1)).set_function(partial(window.feature_mean, index))
        if len(labels) <= MOST_LABEL_SERIES:
            rates = self._label_gauge(
                "kmcl_label_rate", "Share of the images in the window in which the label is present"
            )
            for index, label in enumerate(labels):
                rates.labels(label).set_function(partial(window.label_rate, index))

    def watch_drift(self, labels: Sequence[str], val: PredictedImages) -> None:
        """Gauges of the comparison of the last images with val, set by `show_drift`, and val's own rates."""
        if val.unfamiliarity is not None:
            share = float(is_unfamiliar(val.unfamiliarity).mean())
            self._gauge("kmcl_val_unfamiliar_share", "Share of unfamiliar images in val", lambda: share)
        if val.features is not None:
            means = self._feature_gauge("kmcl_val_feature_mean", "Mean of a summary of features in val")
            for number, mean in enumerate(val.features.mean(axis=0).tolist(), 1):
                means.labels(str(number)).set(mean)
        self._findings = Gauge(
            "kmcl_drift_findings",
            "Checks by which the images in the window differ from val; NaN before the first image",
            registry=self._registry,
        )
        self._findings.set(float("nan"))
        if len(labels) <= MOST_LABEL_SERIES:
            rates = self._label_gauge("kmcl_val_label_rate", "Share of val in which the label is present")
            for label, rate in zip(labels, val.present.mean(axis=0).tolist(), strict=True):
                rates.labels(label).set(rate)
            self._p_values = Gauge(
                "kmcl_drift_p_value",
                "Adjusted p-value of each check; there is no label where whole images are compared",
                ["check", "label"],
                registry=self._registry,
            )

    def show_drift(self, drift: Drift) -> None:
        if self._findings is not None:
            self._findings.set(len(drift.found))
        if self._p_values is not None:
            for check in drift.checks:
                self._p_values.labels(check.what, check.label or "").set(check.adjusted)

    def _label_gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, ["label"], registry=self._registry)

    def _feature_gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, ["feature"], registry=self._registry)

    def _gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        Gauge(name, about, registry=self._registry).set_function(value)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """path: a route of the service, never a client's own text, which bounds the number of series."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, num_images: int, seconds: float) -> None:
        self._batches.observe(num_images)
        self._images.inc(num_images)
        self._model_seconds.inc(seconds)

    def count_unfamiliar(self, num_images: int) -> None:
        if self._unfamiliar is not None:
            self._unfamiliar.inc(num_images)

    def text(self) -> bytes:
        return generate_latest(self._registry)
