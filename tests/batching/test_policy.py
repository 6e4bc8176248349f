import pytest

from app.batching.policy import BatchingOptions, SelfTuning
from app.core.errors import InvalidRequest


def test_some_options_are_changed_and_the_others_stay() -> None:
    options = BatchingOptions(max_batch_delay_ms=1.5).changed({"max_batch_size": 8, "target_p99_ms": 50})
    assert options.as_dict() == {
        "max_batch_size": 8, "max_batch_delay_ms": 1.5, "target_p99_ms": 50, "weight": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"max_batch_size": -1}, "max_batch_size is -1, but should be a whole number of rows"),
        ({"max_batch_size": True}, "max_batch_size is True, but"),
        ({"max_batch_size": 2.5}, "max_batch_size is 2.5, but"),
        ({"target_p99_ms": "50"}, "target_p99_ms is '50', but should be a number of milliseconds"),
        ({"target_p99_ms": float("nan")}, "target_p99_ms is nan, but"),
        ({"max_batch_delay_ms": None}, "max_batch_delay_ms is None, but"),
        ({"target_p99_ms": [1] * 1000}, r"target_p99_ms is \[1, 1, 1, 1, 1, 1, \.\.\.\], but"),
        ({"target_p99_ms": True}, "target_p99_ms is True, but"),
        ({"max_batch_delay_ms": -1}, "max_batch_delay_ms is -1, but"),
        ({"max_batch_delay_ms": 1e9}, "max_batch_delay_ms is 1000000000.0, but should be .* from 0 to 10000$"),
        ({"max_batch_delay_ms": float("inf")}, "max_batch_delay_ms is inf, but"),
        ({"target_p99_ms": 10**400}, r"target_p99_ms is 10+\.\.\.0+, but should be .* from 0 to 600000$"),
        ({"weight": "3"}, "weight is '3', but should be a number from 0.001 to 1000"),
        ({"weight": True}, "weight is True, but"),
        ({"weight": -1}, "weight is -1, but should be a number from 0.001 to 1000, or 0 for none"),
        ({"weight": 1e-320}, "weight is 1e-320, but should be a number from 0.001 to 1000, or 0 for none"),
        ({"weight": 1001}, "weight is 1001, but should be a number from 0.001 to 1000, or 0 for none"),
        ({"max_pause_ms": 1}, "max_pause_ms is no batching option; there are max_batch_size, "),
        ({"max_delay": 1}, "max_delay is no batching option; there are max_batch_size, "),
    ],
)
def test_what_is_wrong_is_named_with_what_is_expected(changes: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        BatchingOptions().changed(changes)


def test_no_batch_is_larger_than_those_of_warm_up() -> None:
    BatchingOptions(max_batch_size=64).check_largest(64)
    with pytest.raises(InvalidRequest, match="max_batch_size is 65, but should be at most 64"):
        BatchingOptions(max_batch_size=65).check_largest(64)


@pytest.mark.parametrize("weight", [0, 0.001, 2.5, 1000])
def test_a_weight_is_0_or_from_a_thousandth_to_a_thousand(weight: float) -> None:
    assert BatchingOptions(weight=weight).weight == weight


def test_a_policy_that_takes_all_rows_at_once_is_eager() -> None:
    assert SelfTuning().eager is True
    assert SelfTuning(BatchingOptions(target_p99_ms=50, weight=2)).eager is True
    assert SelfTuning(BatchingOptions(max_batch_delay_ms=1)).eager is False
    assert SelfTuning(BatchingOptions(max_batch_size=8)).eager is False
