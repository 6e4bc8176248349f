"""The metrics that TensorFlow Serving's dashboards ask for, by its names: a listener to events.

Only figures that are true here. Its times are in microseconds; labels that nothing here knows are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from app.events import BatchExecuted, Event, RequestFinished

_PREFIX = ":tensorflow:serving:"
_BATCHING = _PREFIX + "batching_session:"
#: TensorFlow Serving's own buckets of times.
_MICROSECONDS = tuple(10 * 1.8**exponent for exponent in range(33))
_ROWS = tuple(float(2**exponent) for exponent in range(13))

#: The names of its status codes by HTTP's. gRPC tells the names itself.
_STATUS = {
    "200": "OK", "400": "INVALID_ARGUMENT", "404": "NOT_FOUND", "413": "INVALID_ARGUMENT", "415": "INVALID_ARGUMENT",
    "499": "CANCELLED", "500": "INTERNAL", "501": "UNIMPLEMENTED", "503": "UNAVAILABLE", "504": "DEADLINE_EXCEEDED",
}  # fmt: skip


class TensorFlowMetrics:
    """Counts the calls of models; what only asked for their state is no request in TensorFlow Serving's sense."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._latency = Histogram(
            _PREFIX + "request_latency", "Microseconds from a request's arrival to its answer.",
            ("model_name", "entrypoint"), buckets=_MICROSECONDS, registry=registry,
        )  # fmt: skip
        self._runtime = Histogram(
            _PREFIX + "runtime_latency", "Microseconds that one call of the model took.",
            ("model_name", "runtime"), buckets=_MICROSECONDS, registry=registry,
        )  # fmt: skip
        self._batch_size = Histogram(
            _BATCHING + "processed_batch_size", "Rows in a batch, padding counted.",
            ("model_name",), buckets=_ROWS, registry=registry,
        )  # fmt: skip
        self._padding = Histogram(
            _BATCHING + "padding_size", "Rows added to reach an allowed batch size.",
            ("model_name", "execution_batch_size"), buckets=_ROWS, registry=registry,
        )  # fmt: skip
        self._queuing = Histogram(
            _BATCHING + "queuing_latency", "Microseconds that a request waited for its batch to start.",
            ("model_name",), buckets=_MICROSECONDS, registry=registry,
        )  # fmt: skip

    def __call__(self, event: Event) -> None:
        if isinstance(event, RequestFinished) and event.signature:
            self._requests[event.model, _STATUS.get(event.code, event.code)] += 1
            entrypoint = "GRPC" if "grpc" in event.protocol else "REST"
            self._latency.labels(event.model, entrypoint).observe(event.seconds * 1e6)
        elif isinstance(event, BatchExecuted):
            self._batch_executed(event)

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return "".join(self._count_page()).encode() + generate_latest(self._registry)

    def _batch_executed(self, event: BatchExecuted) -> None:
        rows = event.rows + event.padded_rows
        self._runtime.labels(event.model, "TF2").observe(event.compute_s * 1e6)
        self._batch_size.labels(event.model).observe(rows)
        self._padding.labels(event.model, str(rows)).observe(event.padded_rows)
        observe = self._queuing.labels(event.model).observe
        for seconds in event.queue_s:
            observe(seconds * 1e6)

    def _count_page(self) -> Iterator[str]:
        """By hand: prometheus_client would end the name with `_total`."""
        name = _PREFIX + "request_count"
        yield f"# HELP {name} The total number of requests.\n# TYPE {name} counter\n"
        for (model, status), count in self._requests.items():
            yield f'{name}{{model_name="{_escaped(model)}",status="{_escaped(status)}"}} {count}\n'


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
