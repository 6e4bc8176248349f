import pytest

from app.batching.policy import BatchingOptions
from app.core.errors import InvalidRequest


def test_some_options_are_changed_and_the_others_stay() -> None:
    options = BatchingOptions(max_batch_delay_ms=1.5).changed({"max_batch_size": 8, "target_p99_ms": 50})
    assert options.as_dict() == {
        "max_batch_size": 8, "max_batch_delay_ms": 1.5, "target_p99_ms": 50,
        "weight": 0.0,
        "policy": "self_tuning",
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
        ({"policy": 3}, "policy is 3, but should be a name"),
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
