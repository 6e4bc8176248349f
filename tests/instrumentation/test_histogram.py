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
    one.add(other)
    assert (one.counts, one.total) == ([2, 0, 1, 1], 35)
    assert (other.counts, other.total) == ([1, 0, 0, 1], 31)
