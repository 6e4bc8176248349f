"""Histograms as Prometheus prints them.

How often values came, by upper bounds; cheap to count, and read only when somebody asks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

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


class Histogram:
    """`counts[i]` values lay above bound i-1 and at most at bound i; the last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are ascending."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def observe_all(self, values: Iterable[float]) -> None:
        """Many at once. Those of one batch lie in few buckets, so this costs little more for many than for one."""
        ordered = sorted(values)
        start, end = 0, len(ordered)
        while start < end:
            bucket = bisect_left(self.bounds, ordered[start])
            after = bisect_right(ordered, self.bounds[bucket], start) if bucket < len(self.bounds) else end
            self.counts[bucket] += after - start
            start = after
        self.total += sum(ordered)

    def since(self, before: Histogram) -> Histogram:
        """What was counted after `before`, this histogram as it was; of the same bounds."""
        later = Histogram(self.bounds)
        later.counts = [own - less for own, less in zip(self.counts, before.counts, strict=True)]
        later.total = self.total - before.total
        return later

    def quantile(self, share: float) -> float:
        """What about this share of the values lay below: within a bucket as if they lay evenly; 0 of none."""
        left, low = share * self.count, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and left <= count:
                return low + (bound - low) * left / count
            left, low = left - count, bound
        return low if self.count else 0.0

    def add(self, other: Histogram) -> None:
        """Counts what `other`, of the same bounds, counted."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def up_to(self, bounds: Iterable[float]) -> list[int]:
        """How many values were at most each of `bounds`, which are some of this histogram's."""
        return [sum(self.counts[: bisect_right(self.bounds, bound)]) for bound in bounds]
