from app.batching.costs.curve import CostCurve
from app.batching.costs.pace import Pace

SIZES = (1, 2, 4, 8)
BY_THE_ROW = CostCurve(SIZES, (1.0, 2.0, 4.0, 8.0))


def paced(calls: list[tuple[int, float, int]], curve: CostCurve = BY_THE_ROW) -> Pace:
    """What is known after calls of these rows that took so many seconds beside as many calls, itself included."""
    pace = Pace(curve)
    for rows, seconds, beside in calls:
        pace.record(rows, seconds, beside, curve, stale=False)
    return pace


def test_until_a_size_was_tried_the_calls_own_seconds_count() -> None:
    assert paced([(1, 0.5, 1)] * 2).curve == BY_THE_ROW
    assert paced([(1, 0.5, 1)] * 3).curve.call_s(1) == 0.5


def test_calls_side_by_side_share_the_machine() -> None:
    curve = paced([(1, 1.0, 1)] * 3 + [(8, 8.0, 2)] * 3).curve
    assert (curve.call_s(1), curve.call_s(8)) == (1.0, 4.0)
    assert curve.efficient_rows == 8


def test_time_between_calls_is_theirs() -> None:
    steep = CostCurve((1, 8), (1.0, 10.0))
    assert steep.efficient_rows == 1
    assert paced([(1, 1.5, 1)] * 3 + [(8, 10.5, 1)] * 3, steep).curve.efficient_rows == 8


def test_of_the_first_calls_the_least_counts() -> None:
    assert paced([(8, 30.0, 1), (8, 7.0, 1), (8, 9.0, 1)]).curve.call_s(8) == 7.0


def test_afterwards_it_is_an_average_and_a_call_that_was_held_up_counts_little() -> None:
    calls = [(8, 8.0, 1)] * 15
    assert paced([*calls, (8, 1000.0, 1)]).curve.call_s(8) == 8.0 + (32.0 - 8.0) / 16


def test_a_size_that_was_not_called_for_long_is_half_forgotten() -> None:
    pace = paced([(8, 8.0, 1)] * 15)
    pace.record(8, 4.0, 1, BY_THE_ROW, stale=True)
    assert pace.curve.call_s(8) == 6.0


def test_a_larger_size_that_may_be_as_good_is_tried() -> None:
    """It was estimated at twice the best, which a first call may be; at three times it is not worth a try."""
    for estimated_s, efficient in [(4.0, 2), (6.0, 1)]:
        curve = CostCurve((1, 2), (1.0, estimated_s))
        assert curve.efficient_rows == 1
        assert paced([(1, 1.0, 1)] * 3, curve).curve.efficient_rows == efficient


def test_as_many_calls_as_share_the_machine_a_size_may_be_better_than_estimated() -> None:
    curve = CostCurve((1, 2, 4), (1.0, 6.0, 6.0))
    assert paced([(1, 3.0, 3)] * 3, curve).curve.efficient_rows == 4


def test_a_smaller_size_is_expected_to_gain_as_the_next_larger_one_does() -> None:
    dear = CostCurve(SIZES, (1.0, 2.0, 4.0, 16.0))
    curve = paced([(1, 1.0, 1)] * 3 + [(8, 16.0, 2)] * 3, dear).curve
    assert curve.call_s(4) == 2.0
    assert curve.efficient_rows == 4
