"""Prometheus metrics: a listener to events, and gauges read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from app.events import BatchExecuted, Event, RequestFinished, VariantsChosen

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MODEL = ("model", "version", "signature")


class Metrics:
    """All of Ferry's metrics, in a registry of their own."""

    def __init__(self, queue_rows: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "ferry_requests", "Requests answered, by protocol and its status code.",
            ("protocol", "code", *_MODEL), registry=registry,
        )  # fmt: skip
        self._request_seconds = Histogram(
            "ferry_request_seconds", "Seconds from a request's arrival to its answer.",
            ("protocol", *_MODEL), buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._queue_seconds = Histogram(
            "ferry_queue_seconds", "Seconds that requests waited for a device.", _MODEL,
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._compute_seconds = Histogram(
            "ferry_compute_seconds", "Seconds that batches took on the device.", _MODEL,
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._batch_rows = Histogram(
            "ferry_batch_rows", "Rows in a batch, padding not counted.", _MODEL, buckets=_ROWS, registry=registry
        )
        self._batches = Counter(
            "ferry_batches", "Batches executed, by the reason that closed them: full, idle, delay or drain.",
            ("reason", *_MODEL), registry=registry,
        )  # fmt: skip
        self._padded_rows = Counter(
            "ferry_padded_rows", "Rows computed for nobody, to reach an allowed batch size.", _MODEL, registry=registry
        )
        self._failed = Counter(
            "ferry_failed_executions", "Requests whose execution failed, each alone.", _MODEL, registry=registry
        )
        self._variant = Gauge(
            "ferry_execution_variant", "How many times as fast as the plain SavedModel the variant in use is.",
            (*_MODEL, "batch_size", "variant"), registry=registry,
        )  # fmt: skip
        Gauge("ferry_queue_rows", "Rows that wait for a device.", registry=registry).set_function(queue_rows)

        self._of_request = cache(self._label_request)  # finding labelled metrics costs more than counting

    def __call__(self, event: Event) -> None:
        if isinstance(event, RequestFinished):
            self._request_finished(event)
        elif isinstance(event, BatchExecuted):
            self._batch_executed(event)
        elif isinstance(event, VariantsChosen):
            for size, (variant, speed_up) in event.variants.items():
                self._variant.labels(event.model, event.version, event.signature, size, variant).set(speed_up)
        elif event.state == "END":
            self._variant.remove_by_labels({"model": event.model, "version": str(event.version)})

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def _request_finished(self, event: RequestFinished) -> None:
        requests, seconds = self._of_request(event.protocol, event.code, event.model, event.version, event.signature)
        requests.inc()
        seconds.observe(event.seconds)

    def _label_request(
        self, protocol: str, code: str, model: str, version: int, signature: str
    ) -> tuple[Counter, Histogram]:
        labels = (model, str(version), signature)
        return self._requests.labels(protocol, code, *labels), self._request_seconds.labels(protocol, *labels)

    def _batch_executed(self, event: BatchExecuted) -> None:
        model = (event.model, str(event.version), event.signature)
        self._batch_rows.labels(*model).observe(event.rows)
        self._batches.labels(event.reason, *model).inc()
        self._padded_rows.labels(*model).inc(event.padded_rows)
        self._failed.labels(*model).inc(event.failed)
        self._compute_seconds.labels(*model).observe(event.compute_s)
        observe = self._queue_seconds.labels(*model).observe
        for seconds in event.queue_s:
            observe(seconds)
