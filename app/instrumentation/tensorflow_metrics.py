"""The metrics page for dashboards of TensorFlow Serving, by its names, written from the counts.

Times are in microseconds. Metrics and labels without a true value in Ferry are left out. Requests that only ask for a
model's state are not counted, as in TensorFlow Serving. A pipeline has requests; its calls are those of its models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from app.instrumentation.counts import BatchCounts, Counts
from app.instrumentation.histogram import (
    IN_A_SECOND,
    MICROSECONDS,
    Histogram,
    Labels,
    histogram_family,
    merge_histograms,
)
from app.instrumentation.metric_lines import OneMetric
from app.log_output.printable import printable_page

_PREFIX = ":tensorflow:serving:"
_BATCHING = _PREFIX + "batching_session:"
_ROWS = tuple(2**exponent for exponent in range(13))

#: TensorFlow's status by HTTP status. gRPC's codes are these names already.
_STATUS = {
    "200": "OK", "400": "INVALID_ARGUMENT", "401": "UNAUTHENTICATED", "403": "PERMISSION_DENIED", "404": "NOT_FOUND",
    "406": "INVALID_ARGUMENT", "413": "INVALID_ARGUMENT", "415": "INVALID_ARGUMENT", "429": "RESOURCE_EXHAUSTED",
    "499": "CANCELLED", "500": "INTERNAL", "501": "UNIMPLEMENTED", "503": "UNAVAILABLE", "504": "DEADLINE_EXCEEDED",
}  # fmt: skip


class TensorFlowMetrics:
    """The page of one process."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def render(self) -> Generator[None, None, bytes]:
        """The page, in pieces of one metric."""
        page = ["".join(self._count_page()).encode()]
        for metric in self._metrics():
            yield
            page.append(generate_latest(OneMetric(metric)))
        return printable_page(b"".join(page))

    def _metrics(self) -> Iterator[Metric]:
        """All metrics but the count of requests."""
        batches = self._batches()
        yield _times(
            _PREFIX + "request_latency", "Microseconds from a request's arrival to its answer.",
            ("model_name", "entrypoint"),
            merge_histograms(
                ((model, "GRPC" if "grpc" in protocol else "REST"), seconds)
                for protocol, _, model, seconds in self._requests()
            ),
        )  # fmt: skip
        yield _times(
            _PREFIX + "runtime_latency", "Microseconds that one call of the model took.", ("model_name", "runtime"),
            merge_histograms(((model, "TF2"), counts.compute_s) for model, counts in batches),
        )  # fmt: skip
        yield histogram_family(
            _BATCHING + "processed_batch_size", "Rows in a batch, padding counted.", ("model_name",),
            merge_histograms(((model,), counts.rows(_ROWS, padded=True)) for model, counts in batches), bounds=_ROWS,
        )  # fmt: skip
        yield histogram_family(
            _BATCHING + "padding_size", "Rows added to reach an allowed batch size.",
            ("model_name", "execution_batch_size"), self._padding(), bounds=_ROWS,
        )  # fmt: skip
        yield _times(
            _BATCHING + "queuing_latency", "Microseconds that a request waited for its batch to start.",
            ("model_name",), merge_histograms(((model,), counts.queue_s) for model, counts in batches),
        )  # fmt: skip

    def _requests(self) -> Iterator[tuple[str, str, str, Histogram]]:
        """Protocol, code, model and seconds of requests to models."""
        for (protocol, code, model, _, signature), seconds in self._counts.requests.copy().items():
            if signature:
                yield protocol, code, model, seconds
        for (protocol, code, model), seconds in self._counts.past_requests.copy().items():
            yield protocol, code, model, seconds

    def _batches(self) -> list[tuple[str, BatchCounts]]:
        batches = [(model, counts) for (model, _, _), counts in self._counts.batches.copy().items()]
        return batches + list(self._counts.past_batches.copy().items())

    def _padding(self) -> dict[Labels, Histogram]:
        padding: dict[Labels, Histogram] = {}
        for model, counts in self._batches():
            for (rows, padded_rows, _), calls in counts.calls.copy().items():
                labels = model, str(rows + padded_rows)
                padding.setdefault(labels, Histogram(_ROWS)).observe(padded_rows, calls)
        return padding

    def _count_page(self) -> Iterator[str]:
        """The count of requests. Written by hand: prometheus_client would end the name with `_total`."""
        name = _PREFIX + "request_count"
        yield f"# HELP {name} The total number of requests.\n# TYPE {name} counter\n"
        requests: Counter[tuple[str, str]] = Counter()
        for _, code, model, seconds in self._requests():
            requests[model, _STATUS.get(code, code)] += seconds.count
        for (model, status), count in requests.items():
            yield f'{name}{{model_name="{_escaped(model)}",status="{_escaped(status)}"}} {count}\n'


def _times(name: str, documentation: str, labels: Labels, seconds: dict[Labels, Histogram]) -> Metric:
    return histogram_family(name, documentation, labels, seconds, bounds=MICROSECONDS, factor=IN_A_SECOND)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
