"""What calls took of each request, by fold.c and by numpy, beside a loop over nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import BatchTiming
from app.pipelines.fold import compiled_fold
from app.pipelines.fold.fold_costs import FoldCosts
from tests.pipelines.fold.fold_cores import each_core  # noqa: F401 - pytest finds it

#: As in fold_costs.py.
MOST_AHEAD_S = 0.05

#: When all have begun.
BEGUN_S = 10.0

seconds = st.floats(0, 1).map(lambda value: round(value, 6))
numbers = st.integers(0, 199)  # more than there is room for at first
calls = st.lists(st.tuples(st.lists(numbers, min_size=1, max_size=40), seconds, st.integers(1, 500)), max_size=8)


@given(begun=st.dictionaries(numbers, st.tuples(seconds, seconds)), calls=calls)
def test_each_request_is_charged_its_share_of_the_time_that_passed(
    begun: dict[int, tuple[float, float]], calls: Sequence[tuple[list[int], float, int]]
) -> None:
    costs, now, entered = FoldCosts(), BEGUN_S, dict[int, float]()
    costs.make_room(199)
    for number, (entered_s, _) in begun.items():
        costs.begin(number, 1, 1, entered_s, 0.0, now, first=not entered)
        entered[number] = entered_s
    spent, largest = Counter[int](), Counter[int]()
    for asked, compute_s, elsewhere in calls:
        nodes = [number for number in asked if number in begun]
        if not nodes:
            continue
        passed_s, rows = compute_s + 1e-3, len(nodes) + elsewhere
        now += passed_s
        costs.charge(np.array(nodes, np.intp), BatchTiming(0.0, compute_s, rows), now)
        for number, count in Counter(nodes).items():
            charged_s = max(entered[number], BEGUN_S) + passed_s * count / rows
            entered[number] = max(charged_s, now - MOST_AHEAD_S)
            spent[number] += compute_s
            largest[number] = max(largest[number], rows)
    for number in begun:
        (timing,) = costs.timings([number])
        assert timing.compute_s == pytest.approx(spent[number])
        assert timing.rows == largest[number]
        assert costs.entered_s(number) == pytest.approx(entered[number])


@pytest.mark.parametrize("number", [-1, 64, 1 << 40])
def test_numbers_of_no_request_are_declined_before_anything_is_written(number: int) -> None:
    costs = FoldCosts()
    costs.begin(1, 1, 1, 0.0, 0.0, 0.0, first=True)
    if compiled_fold.library() is None:
        return  # numpy's own errors do
    with pytest.raises(IndexError, match="expected numbers of requests"):
        costs.charge(np.array([1, number], np.intp), BatchTiming(0.0, 1.0, 2), 1.0)
    assert costs.timings([1]) == [BatchTiming(0.0, 0.0, 0)]


@pytest.mark.parametrize(("levels", "nodes"), [(5000, 5000), (10, 5000)], ids=["deep", "many nodes"])
def test_a_call_of_a_large_request_alone_stands_behind_what_came_before_the_last_call_ended(
    levels: int, nodes: int
) -> None:
    costs, both = FoldCosts(), np.array([1, 2])
    costs.begin(1, levels, nodes, 0.0, 0.0, 0.0, first=True)
    costs.begin(2, 3, 5, 0.99, 0.0, 0.99, first=False)
    costs.charge(both[:1], BatchTiming(0.0, 0.01, 1), 0.995)
    for now in (1.0, 1.01, 1.02):
        costs.charge(both, BatchTiming(0.0, 0.01, 2), now)
        assert costs.entered_s(1) == now
        assert costs.entered_s(2) < now, "usual trees keep their place"
        assert costs.first_of(both) == 2
