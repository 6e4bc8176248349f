"""Which requests one call computes: by their deadlines and their rows."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import InferenceRequest
from app.core.joining.groups import alike_groups, calls_by_rows, deadlines_alike, joined_request, split_request

NOW_S = 100.0


@pytest.mark.parametrize(
    ("first_s", "other_s", "alike"),
    [
        (inf, inf, True),
        (30.0, 30.04, True),
        (30.0, 30.06, False),
        (30.0, inf, False),
        (0.1, 0.109, True),
        (0.1, 0.111, False),
        (-1.0, -1.0, True),
        (-1.0, -0.999, False),
    ],
)
def test_deadlines_are_alike_within_50_ms_and_a_tenth_of_the_time_that_is_left(
    first_s: float, other_s: float, *, alike: bool
) -> None:
    assert deadlines_alike(NOW_S + first_s, NOW_S + other_s, NOW_S) is alike


@given(st.lists(st.one_of(st.just(inf), st.floats(99, 100.3), st.floats(130, 130.2)), min_size=1, max_size=12))
def test_no_request_loses_more_of_its_time_than_the_rule_allows(deadlines_s: list[float]) -> None:
    """A call has the earliest deadline of its requests."""
    numbers = list(range(len(deadlines_s)))
    groups = alike_groups(numbers, deadlines_s, NOW_S)
    assert sorted(number for group, _ in groups for number in group) == numbers
    assert [group for group, _ in groups] == sorted(sorted(group) for group, _ in groups), "in order of arrival"
    for group, earliest_s in groups:
        assert earliest_s == min(deadlines_s[number] for number in group)
        for number in group:
            lost_s = 0.0 if deadlines_s[number] == earliest_s else deadlines_s[number] - earliest_s
            assert lost_s == 0 or lost_s < min(0.05, 0.1 * (earliest_s - NOW_S))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 9))
def test_calls_have_no_more_rows_than_they_may_and_are_as_few_as_the_order_allows(rows: list[int], most: int) -> None:
    calls = list(calls_by_rows(rows, most))
    assert [number for call in calls for number in range(len(rows))[call]] == list(range(len(rows)))
    for call, following in zip(calls, [*calls[1:], None], strict=True):
        count = len(rows[call])
        assert count == 1 or sum(rows[call]) <= most
        assert following is None or sum(rows[call]) + rows[following.start] > most


def test_a_request_of_several_is_cut_into_calls_and_joined_again() -> None:
    request = InferenceRequest({"x": np.arange(5)}, "other", ("y",), 7.0, 1, "caller")
    parts = list(split_request(request, [2, 1, 2], 3))
    assert [(numbers, part.inputs["x"].tolist()) for numbers, part in parts] == [
        (slice(0, 2), [0, 1, 2]),
        (slice(2, 3), [3, 4]),
    ]
    earlier = InferenceRequest({"x": np.arange(2)}, "other", ("y",), 6.0, 1, "caller")
    joined = joined_request([parts[0][1], parts[1][1], earlier])
    assert joined.inputs["x"].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert (joined.signature, joined.outputs, joined.deadline_s) == ("other", ("y",), 6.0)
    assert (joined.priority, joined.caller) == (1, "caller")
    assert [part for _, part in split_request(request, [2, 1, 2], 5)] == [request]
