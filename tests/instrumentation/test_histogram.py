import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.instrumentation.histogram import Histogram

BOUNDS = (1.0, 2.5, 7.0)
VALUES = st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(0, 10)))


@given(VALUES)
def test_every_value_is_counted_where_it_belongs(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    assert histogram.up_to(BOUNDS) == [sum(value <= bound for value in values) for bound in BOUNDS]
    assert histogram.up_to([2.5]) == [sum(value <= 2.5 for value in values)]
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))


@given(VALUES)
def test_many_at_once_count_as_each_would(values: list[float]) -> None:
    alone, together = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in sorted(values):
        alone.observe(value)
    together.observe_all(values)
    assert together.counts == alone.counts
    assert together.total == pytest.approx(sum(values))


def test_a_value_may_count_more_than_once() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(2, 3)
    assert (histogram.counts, histogram.total) == ([0, 3, 0, 0], 6)


def test_histograms_add_up() -> None:
    one, other = Histogram(BOUNDS), Histogram(BOUNDS)
    one.observe_all([1, 3])
    other.observe_all([1, 30])
    both = one + other
    assert (both.counts, both.total) == ([2, 0, 1, 1], 35)
    assert (other.counts, other.total) == ([1, 0, 0, 1], 31)


@given(VALUES, VALUES)
def test_what_came_later_is_told_apart(before: list[float], later: list[float]) -> None:
    histogram, alone = Histogram(BOUNDS), Histogram(BOUNDS)
    histogram.observe_all(before)
    old = histogram - Histogram(BOUNDS)
    histogram.observe_all(later)
    alone.observe_all(later)
    since = histogram - old
    assert since.counts == alone.counts
    assert since.total == pytest.approx(sum(later))


@given(VALUES, st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_that_holds_it(values: list[float], share: float) -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe_all(values)
    found, wanted = histogram.quantile(share), share * len(values)
    below = [sum(value <= bound for value in values) for bound in BOUNDS if bound < found]
    assert max(below, default=0) <= wanted + 1e-9
    if found < BOUNDS[-1]:
        assert sum(value <= min(bound for bound in BOUNDS if bound >= found) for value in values) >= wanted - 1e-9


def test_quantiles_lie_evenly_within_a_bucket() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe_all([0.5, 0.5, 2, 2])
    assert [histogram.quantile(share) for share in (0.25, 0.5, 0.75, 1)] == [0.5, 1.0, 1.75, 2.5]
    histogram.observe(100.0, 96)
    assert histogram.quantile(0.99) == 7.0, "beyond the last bound nothing is known"
