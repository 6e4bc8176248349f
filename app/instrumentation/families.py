"""Histograms as Prometheus prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from app.instrumentation.histogram import Histogram

#: The values of a family's labels.
Labels = tuple[str, ...]


def merged(histograms: Iterable[tuple[Labels, Histogram]]) -> dict[Labels, Histogram]:
    """One histogram for equal labels, all of the same bounds."""
    whole: dict[Labels, Histogram] = {}
    for labels, histogram in histograms:
        if labels not in whole:
            whole[labels] = Histogram(histogram.bounds)
        whole[labels].add(histogram)
    return whole


def histogram_family(
    name: str,
    documentation: str,
    labels: Sequence[str],
    histograms: Mapping[Labels, Histogram],
    *,
    bounds: Sequence[float],
    factor: float = 1.0,
) -> HistogramMetricFamily:
    """A family with these bounds, in a unit of which `factor` make one of the histograms'."""
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in histograms.items():
        counts = histogram.up_to([bound / factor for bound in bounds])
        buckets = [*zip(map(floatToGoString, bounds), counts, strict=True), ("+Inf", histogram.count)]
        family.add_metric(values, buckets, histogram.total * factor)
    return family
