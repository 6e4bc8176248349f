"""The Prometheus page: written from the counts, and from what the queue says, when it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from app.core.events import ModelPlaced, ModelStateChanged, Subscriptions, VariantsChosen
from app.instrumentation.counts import SECONDS, BatchCounts, Counts
from app.instrumentation.histogram import histogram_family, merged

CONTENT_TYPE = CONTENT_TYPE_LATEST

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MODEL = ("model", "version", "signature")


class Metrics(Collector):
    """All of Ferry's metrics, in a registry of their own."""

    def __init__(self, counts: Counts, queue_rows: Callable[[], int]) -> None:
        self._counts = counts
        self._registry = registry = CollectorRegistry()
        registry.register(self)
        self._variant = Gauge(
            "ferry_execution_variant", "How many times as fast as the plain SavedModel the variant in use is.",
            (*_MODEL, "batch_size", "variant"), registry=registry,
        )  # fmt: skip
        self._replicas = Gauge(
            "ferry_replicas", "On how many devices a version lives.", ("model", "version"), registry=registry
        )
        Gauge("ferry_queue_rows", "Rows that wait for a device.", registry=registry).set_function(queue_rows)
        self.subscriptions: Subscriptions = {
            ModelPlaced: self._model_placed,
            VariantsChosen: self._variants_chosen,
            ModelStateChanged: self._model_state_changed,
        }

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What was counted, as prometheus_client asks for it."""
        yield from self._requests()
        yield from self._batch_times()
        yield from self._batch_counts()

    def _requests(self) -> Iterator[Metric]:
        counted = [
            (protocol, code, (model, str(version), signature), seconds)
            for (protocol, code, model, version, signature), seconds in self._counts.requests.copy().items()
        ]
        requests = CounterMetricFamily(
            "ferry_requests", "Requests answered, by protocol and its status code.",
            labels=("protocol", "code", *_MODEL),
        )  # fmt: skip
        for protocol, code, function, seconds in counted:
            requests.add_metric((protocol, code, *function), seconds.count)
        yield requests
        yield histogram_family(
            "ferry_request_seconds", "Seconds from a request's arrival to its answer.", ("protocol", *_MODEL),
            merged(((protocol, *function), seconds) for protocol, _, function, seconds in counted), bounds=SECONDS,
        )  # fmt: skip

    def _batch_times(self) -> Iterator[Metric]:
        counted = self._batches()
        yield histogram_family(
            "ferry_queue_seconds", "Seconds that requests waited for a device.", _MODEL,
            {function: counts.queue_s for function, counts in counted.items()}, bounds=SECONDS,
        )  # fmt: skip
        yield histogram_family(
            "ferry_compute_seconds", "Seconds that batches took on the device.", _MODEL,
            {function: counts.compute_s for function, counts in counted.items()}, bounds=SECONDS,
        )  # fmt: skip
        yield histogram_family(
            "ferry_batch_rows", "Rows in a batch, padding not counted.", _MODEL,
            {function: counts.rows(_ROWS) for function, counts in counted.items()}, bounds=_ROWS,
        )  # fmt: skip

    def _batch_counts(self) -> Iterator[Metric]:
        batches = CounterMetricFamily(
            "ferry_batches", "Batches executed, by the reason that closed them: full, idle, pause, delay or drain.",
            labels=("reason", *_MODEL),
        )  # fmt: skip
        padded_rows = CounterMetricFamily(
            "ferry_padded_rows", "Rows computed for nobody, to reach an allowed batch size.", labels=_MODEL
        )
        failed = CounterMetricFamily(
            "ferry_failed_executions", "Requests whose execution failed, each alone.", labels=_MODEL
        )
        expired = CounterMetricFamily(
            "ferry_expired_executions", "Requests executed although their time was over; 0 unless there is a bug.",
            labels=_MODEL,
        )  # fmt: skip
        for function, counts in self._batches().items():
            padding, reasons = 0, Counter[str]()
            for (_, padded, reason), calls in counts.calls.copy().items():
                padding += padded * calls
                reasons[reason] += calls
            for reason, calls in reasons.items():
                batches.add_metric((reason, *function), calls)
            padded_rows.add_metric(function, padding)
            failed.add_metric(function, counts.failed)
            expired.add_metric(function, counts.expired)
        yield from (batches, padded_rows, failed, expired)

    def _batches(self) -> dict[tuple[str, ...], BatchCounts]:
        return {
            (model, str(version), signature): counts
            for (model, version, signature), counts in self._counts.batches.copy().items()
        }

    def _model_placed(self, event: ModelPlaced) -> None:
        self._replicas.labels(event.model, event.version).set(len(event.devices))

    def _variants_chosen(self, event: VariantsChosen) -> None:
        for size, (variant, speed_up) in event.variants.items():
            self._variant.labels(event.model, event.version, event.signature, size, variant).set(speed_up)

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == "END":
            for gauge in (self._variant, self._replicas):
                gauge.remove_by_labels({"model": event.model, "version": str(event.version)})
