"""Histograms: counts of values by upper bounds, cheap to update, and read only when a page asks for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

#: Bounds in seconds of Ferry's histograms of times.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: Bounds in microseconds of TensorFlow Serving's histograms of times.
MICROSECONDS = tuple(10 * 1.8**exponent for exponent in range(33))
IN_A_SECOND = 1e6

#: The bounds by which times are counted, for both pages.
BOUNDS = tuple(sorted({*SECONDS, *(bound / IN_A_SECOND for bound in MICROSECONDS)}))

#: The values of a metric's labels.
Labels = tuple[str, ...]


class Histogram:
    """Counts of values: `counts[i]` were above bound i-1 and at most bound i; the last count is above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def observe_all(self, values: Sequence[float]) -> None:
        """Count several values. The values of one batch fall into few buckets, so many cost little more than one."""
        if len(values) == 1:
            self.observe(values[0])
            return
        ordered = sorted(values)
        start, end = 0, len(ordered)
        while start < end:
            bucket = bisect_left(self.bounds, ordered[start])
            after = bisect_right(ordered, self.bounds[bucket], start) if bucket < len(self.bounds) else end
            self.counts[bucket] += after - start
            start = after
        self.total += sum(ordered)

    def __add__(self, other: Histogram) -> Histogram:
        """The values of both, which have the same bounds."""
        both = Histogram(self.bounds)
        both.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both

    def __sub__(self, before: Histogram) -> Histogram:
        """The values since `before`, an earlier copy of this histogram."""
        later = Histogram(self.bounds)
        later.counts = [own - less for own, less in zip(self.counts, before.counts, strict=True)]
        later.total = self.total - before.total
        return later

    def quantile(self, share: float) -> float:
        """The value that this share of all values does not exceed: linear within a bucket, 0 if there are none."""
        left, low = share * self.count, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and left <= count:
                return low + (bound - low) * left / count
            left, low = left - count, bound
        return low if self.count else 0.0

    def up_to(self, bounds: Iterable[float]) -> list[int]:
        """For each of `bounds`, which are bounds of this histogram, the number of values up to it."""
        return [sum(self.counts[: bisect_right(self.bounds, bound)]) for bound in bounds]


def merge_histograms(histograms: Iterable[tuple[Labels, Histogram]]) -> dict[Labels, Histogram]:
    """One histogram for each set of labels, of histograms with the same bounds."""
    merged: dict[Labels, Histogram] = {}
    for labels, histogram in histograms:
        merged[labels] = merged.get(labels, Histogram(histogram.bounds)) + histogram
    return merged


def histogram_family(
    name: str,
    documentation: str,
    labels: Sequence[str],
    histograms: Mapping[Labels, Histogram],
    *,
    bounds: Sequence[float],
    factor: float = 1.0,
    exemplars: Callable[[Labels], Mapping[int, Exemplar]] = lambda _: {},
) -> HistogramMetricFamily:
    """Prometheus' form of the histograms, in a unit that is 1/`factor` of theirs.

    Args:
        bounds: the bounds to show, in the new unit. Each, divided by `factor`, is a bound of the histograms.
        exemplars: of a set of labels, by the number of the bucket.
    """
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in histograms.items():
        counts = histogram.up_to([bound / factor for bound in bounds])
        limits, all_counts = [*map(floatToGoString, bounds), "+Inf"], [*counts, histogram.count]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = [*zip(limits, all_counts, strict=True)]
        for number, exemplar in exemplars(values).items():
            buckets[number] = limits[number], all_counts[number], exemplar
        family.add_metric(values, buckets, histogram.total * factor)
    return family
