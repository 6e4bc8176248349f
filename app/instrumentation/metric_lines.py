"""The text of metrics: what prometheus_client writes, and written again only where numbers have changed.

Rules (test_metric_lines.py)
- The lines of one metric and one set of labels are kept with the numbers that they show, and written anew when these
  differ. So a page costs little for what did not change since the last one of its form.
- What the last page of a form did not show is not kept.
- A page is made in pieces: between two of them counts may change, so two metrics of a page may be some requests apart.
  The lines of one metric and one set of labels are always of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from app.instrumentation.histogram import SECONDS, Histogram, Labels, histogram_family
from app.instrumentation.metric_definitions import MetricDefinition
from app.log_output.printable import printable_page

_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}

#: OpenMetrics, and the line that ends a page of it.
_OPEN_METRICS, _END = "application/openmetrics-text", b"# EOF\n"

#: Kept lines after which a piece ends. Chosen: 0.1 ms.
_LINES_OF_A_PIECE = 128


class Shown(NamedTuple):
    """A metric as it is now.

    Args:
        values: its numbers by labels, a tuple of strings.
        bounds: of histograms.
        exemplars: of a histogram's labels, by the number of the bucket.
    """

    definition: MetricDefinition
    values: Mapping[Any, float | Histogram]
    bounds: tuple[float, ...] = SECONDS
    exemplars: Callable[[Labels], Mapping[int, Exemplar]] = lambda _: {}


class _Kept(NamedTuple):
    """Lines, and the numbers that they show."""

    numbers: object
    lines: bytes


class MetricLines:
    """The lines of the last page of each form."""

    def __init__(self) -> None:
        # By form; they are by name and labels. Names are such that escaping changes nothing.
        self._kept: dict[bool, dict[tuple[str, Labels], _Kept]] = {False: {}, True: {}}

    def write(
        self, content_type: str, shown: Iterable[Shown | None], others: Collector
    ) -> Generator[None, None, bytes]:
        """A page of `others`, and of what is `shown`; None stands where a piece may end.

        Args:
            content_type: a result of `content_type_of`.
        """
        encode, _ = choose_encoder(content_type)
        is_open = content_type.startswith(_OPEN_METRICS)
        before, kept = self._kept[is_open], dict[tuple[str, Labels], _Kept]()
        page = [printable_page(encode(others).removesuffix(_END))]
        for metric in shown:
            if metric is not None:
                page.append(_lines(encode, Shown(metric.definition, {}, metric.bounds)))
                yield from _write(encode, metric, before, kept, page)
            yield
        self._kept[is_open] = kept
        return b"".join([*page, _END] if is_open else page)


def content_type_of(accepted: str) -> str:
    """The form of the page for this Accept header, as prometheus_client chooses it, but one of a few.

    It fails where a version in the header is no number: then the page is text. Later versions get the first one.
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
    metric: Shown,
    before: Mapping[tuple[str, Labels], _Kept],
    kept: dict[tuple[str, Labels], _Kept],
    page: list[bytes],
) -> Iterator[None]:
    """Adds the lines of a metric to the page, and to what is kept."""
    head, name = len(page[-1]), metric.definition.name
    for number, (labels, value) in enumerate(list(metric.values.items()), start=1):
        key = name, labels
        numbers = _numbers(metric, labels, value)
        own = before.get(key)
        if own is None or own.numbers != numbers:
            own = _Kept(numbers, _lines(encode, metric._replace(values={labels: value}))[head:])
            yield
        elif number % _LINES_OF_A_PIECE == 0:
            yield
        kept[key] = own
        page.append(own.lines)


def _numbers(metric: Shown, labels: Labels, value: float | Histogram) -> object:
    if isinstance(value, Histogram):
        return value.counts.copy(), value.total, dict(metric.exemplars(labels))
    return value


def _lines(encode: Callable[[Collector], bytes], metric: Shown) -> bytes:
    return printable_page(encode(_One(metric)).removesuffix(_END))


class _One(Collector):
    """One metric, as prometheus_client asks for it."""

    def __init__(self, metric: Shown) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        definition, values, bounds, exemplars = self._metric
        name, text, labels = definition.name, definition.help, definition.labels
        if definition.type == "histogram":
            histograms = {own: value for own, value in values.items() if isinstance(value, Histogram)}
            yield histogram_family(name, text, labels, histograms, bounds=bounds, exemplars=exemplars)
            return
        family = _FAMILIES[definition.type](name, text, labels=labels)
        for own, value in values.items():
            family.add_metric(own, value)
        yield family
