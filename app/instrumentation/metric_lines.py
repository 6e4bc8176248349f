"""The text of metrics: written by prometheus_client, and written again only where numbers have changed.

Rules (test_metric_lines.py)
- The lines of one metric and one set of labels are kept with the numbers that they show, and written anew when these
  differ. So unchanged metrics cost little on the next page of the same form.
- Lines that the last page of a form did not show are not kept.
- A page is made in pieces: between two of them counts may change, so two metrics of a page may be some requests apart.
  The lines of one metric and one set of labels are always of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from app.instrumentation.histogram import SECONDS, Histogram, Labels, histogram_family
from app.instrumentation.metric_definitions import DEFINITIONS, MetricDefinition
from app.log_output.printable import printable_page

_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}

#: The media type of OpenMetrics, and the last line of its pages.
_OPEN_METRICS, _END = "application/openmetrics-text", b"# EOF\n"

#: A piece ends at every so many label sets of a metric, and at each whose lines are written anew. Chosen: 0.1 ms.
_LABEL_SETS_OF_A_PIECE = 128


class Series(NamedTuple):
    """The series of a metric, with their values now.

    Args:
        values: numbers by labels, a tuple of strings.
        bounds: the upper bounds of the buckets that a histogram shows.
        exemplars: the exemplars for a histogram's labels, by the number of the bucket.
    """

    definition: MetricDefinition
    values: Mapping[Any, float | Histogram]
    bounds: tuple[float, ...] = SECONDS
    exemplars: Callable[[Labels], Mapping[int, Exemplar]] = lambda _: {}

    @classmethod
    def of(cls, name: str, *values: Any, **more: Any) -> Series:
        """The series of the metric `name` of DEFINITIONS; the other arguments are the other fields."""
        return cls(DEFINITIONS[name], *values, **more)


class _KeptLines(NamedTuple):
    """Lines, and the numbers that they show."""

    numbers: object
    lines: bytes


class MetricLines:
    """The writer of pages of metrics, which keeps the lines of the last page of text and of the last of OpenMetrics."""

    def __init__(self) -> None:
        # By "is it OpenMetrics?": the content type, which has the escaping of names, and the lines by name and labels.
        self._kept: dict[bool, tuple[str, dict[tuple[str, Labels], _KeptLines]]] = {}

    def write(
        self, content_type: str, metrics: Iterable[Series | None], others: Collector
    ) -> Generator[None, None, bytes]:
        """A page of metrics, in pieces.

        Args:
            content_type: a result of `content_type_of`.
            metrics: the series to write; a piece ends behind each of them, and at each None.
            others: a collector whose lines are not kept.
        """
        encode, _ = choose_encoder(content_type)
        is_open = content_type.startswith(_OPEN_METRICS)
        of_type, before = self._kept.get(is_open, ("", {}))
        if of_type != content_type:
            before = {}
        kept = dict[tuple[str, Labels], _KeptLines]()
        page = [printable_page(encode(others).removesuffix(_END))]
        for metric in metrics:
            if metric is not None:
                page.append(_lines(encode, Series(metric.definition, {}, metric.bounds)))
                yield from _write(encode, metric, before, kept, page)
            yield
        self._kept[is_open] = content_type, kept
        return b"".join([*page, _END] if is_open else page)


def content_type_of(accepted: str) -> str:
    """The media type of the page for this Accept header: text, or OpenMetrics 1.0.0.

    prometheus_client chooses. It fails where a version in the header is no number: then the page is text.
    """
    try:
        _, content_type = choose_encoder(accepted)
    except (TypeError, ValueError):
        content_type = choose_encoder("")[1]
    if content_type.startswith(_OPEN_METRICS):
        kind, _, *more = content_type.split("; ")
        return "; ".join([kind, "version=1.0.0", *more])
    return content_type


def _write(
    encode: Callable[[Collector], bytes],
    metric: Series,
    before: Mapping[tuple[str, Labels], _KeptLines],
    kept: dict[tuple[str, Labels], _KeptLines],
    page: list[bytes],
) -> Iterator[None]:
    """Add the lines of a metric to the page, and to the kept lines."""
    # The last part of the page is the metric's HELP and TYPE. The lines of a label set repeat them: they are cut off.
    head, name = len(page[-1]), metric.definition.name
    for number, (labels, value) in enumerate(list(metric.values.items()), start=1):
        key = name, labels
        numbers = _numbers(metric, labels, value)
        lines = before.get(key)
        if lines is None or lines.numbers != numbers:
            lines = _KeptLines(numbers, _lines(encode, metric._replace(values={labels: value}))[head:])
            yield
        elif number % _LABEL_SETS_OF_A_PIECE == 0:
            yield
        kept[key] = lines
        page.append(lines.lines)


def _numbers(metric: Series, labels: Labels, value: float | Histogram) -> object:
    if isinstance(value, Histogram):
        return value.counts.copy(), value.total, dict(metric.exemplars(labels))
    return value


def _lines(encode: Callable[[Collector], bytes], metric: Series) -> bytes:
    return printable_page(encode(OneMetric(_family(metric))).removesuffix(_END))


def _family(metric: Series) -> Metric:
    """The metric in prometheus_client's form."""
    definition, values, bounds, exemplars = metric
    name, text, labels = definition.name, definition.help, definition.labels
    if definition.type == "histogram":
        histograms = {own: value for own, value in values.items() if isinstance(value, Histogram)}
        return histogram_family(name, text, labels, histograms, bounds=bounds, exemplars=exemplars)
    family = _FAMILIES[definition.type](name, text, labels=labels)
    for own, value in values.items():
        family.add_metric(own, value)
    return cast("Metric", family)


class OneMetric(Collector):
    """A collector of one metric, for prometheus_client's writers."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric
