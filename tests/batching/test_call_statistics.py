import pytest

from app.batching.batch import Execution
from app.batching.call_statistics import CallStatistics
from tests.support.fakes import FakeFunction, batch_function


def execution(seconds: float) -> Execution:
    return Execution([], 10.0, 10.0 + seconds, 0, 0.0)


def test_the_slowest_call_is_remembered_and_fades() -> None:
    calls, function = CallStatistics(), batch_function(FakeFunction())
    calls.record_call(function, execution(4.0))
    assert calls.slowest_s == pytest.approx(4.0)
    for _ in range(69):
        calls.record_call(function, execution(1.0))
    assert calls.slowest_s == pytest.approx(2.0, rel=0.01)
    assert function.uncontended_s == pytest.approx(1.0)


def test_a_call_that_begins_counts_as_what_it_is_expected_to_take() -> None:
    calls = CallStatistics()
    calls.record_dispatch(3.0)
    calls.record_dispatch(2.0)
    assert calls.slowest_s == 3.0
