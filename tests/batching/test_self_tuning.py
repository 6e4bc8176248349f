"""The policy of the server: its contract, and what it makes of measured costs."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.costs.curve import CostCurve
from app.batching.policy import HEADROOM, BatchingOptions, SelfTuning


@dataclass
class View:
    rows: int
    max_rows: int
    waiting_since_s: float
    timeout_s: float = inf
    curve: CostCurve | None = None
    margin: float = 0.0
    explores: bool = False

    @property
    def costs(self) -> "View":
        return self

    @property
    def pace(self) -> CostCurve | None:
        return self.curve

    def efficient_within(self, seconds: float, most_rows: int) -> int:
        assert self.curve is not None
        return self.curve.efficient_within(min(most_rows, self.curve.rows_within(seconds)))


curves = st.one_of(
    st.none(),
    st.builds(
        lambda fixed, slope: CostCurve((1, 2, 4, 8, 128), tuple(fixed + slope * size for size in (1, 2, 4, 8, 128))),
        st.floats(1e-6, 1),
        st.floats(0, 1),
    ),
)
views = st.builds(
    View,
    rows=st.integers(1, 1000),
    max_rows=st.integers(1, 128),
    waiting_since_s=st.floats(0, 1e6),
    timeout_s=st.one_of(st.just(inf), st.floats(1e-3, 60)),
    curve=curves,
    margin=st.floats(0, 3),
    explores=st.booleans(),
)
options = st.builds(
    BatchingOptions,
    max_batch_size=st.integers(0, 128),
    max_batch_delay_ms=st.floats(0, 1000),
    target_p99_ms=st.floats(0, 1000),
)


@given(view=views, options=options)
def test_contract(view: View, options: BatchingOptions) -> None:
    policy = SelfTuning(options)
    plan = policy.plan(view)
    assert plan == policy.plan(view)  # stateless
    assert 1 <= plan.rows <= plan.most_rows <= view.max_rows
    if not view.explores:
        assert plan.most_rows == policy.most_rows(view)
    assert policy.most_rows(view) <= plan.most_rows
    # Timers start at the oldest request.
    assert view.waiting_since_s <= plan.due_s <= view.waiting_since_s + options.max_batch_delay_ms / 1000
    assert plan.reason in {"full", "idle", "delay"}
    if view.rows >= plan.most_rows:
        assert plan.due_s == view.waiting_since_s  # a full batch does not wait for requests that it has no room for
    if options.max_batch_size:
        assert plan.most_rows <= options.max_batch_size  # what is fixed by hand stays so


def test_reasons() -> None:
    delayed = BatchingOptions(max_batch_delay_ms=500)
    assert SelfTuning().plan(View(3, 4, 7.0)) == (7.0, 4, "idle", 4, True)
    assert SelfTuning(delayed).plan(View(3, 4, 7.0)) == (7.5, 4, "delay", 4, False)
    assert SelfTuning(delayed).plan(View(4, 4, 7.0)) == (7.0, 4, "full", 4, False)
    assert SelfTuning(BatchingOptions(max_batch_size=3)).plan(View(3, 4, 7.0)) == (7.0, 3, "full", 3, True)


# --- self-tuning ---

_AFFINE = CostCurve((1, 2, 4, 8, 16, 32), (0.011, 0.012, 0.014, 0.018, 0.026, 0.042))
_BY_THE_ROW = CostCurve((1, 2, 4, 8), (0.01, 0.02, 0.04, 0.08))


@pytest.mark.parametrize(
    ("target_p99_ms", "timeout_s", "most_rows"),
    [
        (0, inf, 32),
        (100, inf, 32),  # 2 * 42 ms and some headroom
        (84.9, inf, 32),
        (84.8, inf, 16),
        (80, inf, 16),
        (0, 0.08, 16),  # a deadline does the same
        (0, 30.0, 32),
        (80, 0.028, 2),  # the less of both
        (1, inf, 2),  # no call is so quick, but two rows take hardly longer than one
    ],
)
def test_a_call_and_the_one_before_fit_the_target_and_the_time_that_requests_have(
    target_p99_ms: float, timeout_s: float, most_rows: int
) -> None:
    policy = SelfTuning(BatchingOptions(target_p99_ms=target_p99_ms))
    view = View(40, 32, 7.0, timeout_s=timeout_s, curve=_AFFINE)
    assert policy.plan(view) == (7.0, most_rows, "full", most_rows, True)
    if most_rows > 2:
        assert 2 * _AFFINE.call_s(most_rows) <= HEADROOM * min(timeout_s, target_p99_ms / 1000 or inf)


def test_before_calls_are_measured_all_rows_are_taken() -> None:
    assert SelfTuning().plan(View(3, 8, 7.0)) == (7.0, 8, "idle", 8, True)
    assert SelfTuning().plan(View(3, 8, 7.0, explores=True)).rows == 8


def test_where_two_rows_cost_much_more_than_one_requests_run_alone() -> None:
    assert SelfTuning().most_rows(View(2, 2, 7.0, curve=CostCurve((1, 2), (0.01, 0.1)))) == 1


def test_calls_that_vary_are_planned_to_take_longer() -> None:
    view = View(40, 32, 7.0, timeout_s=0.1, curve=_AFFINE)
    assert SelfTuning().most_rows(view) == 32
    view.margin = 0.5
    assert SelfTuning().most_rows(view) == 16


def test_what_waits_is_split_where_padding_would_cost_more() -> None:
    assert SelfTuning().plan(View(5, 8, 7.0, curve=CostCurve((1, 8), (0.01, 0.02)))).rows == 8
    assert SelfTuning().plan(View(5, 8, 7.0, curve=_BY_THE_ROW)).rows == 4
    assert SelfTuning().plan(View(5, 32, 7.0, curve=_AFFINE)).rows == 32  # all of them


def test_rows_that_larger_batches_make_no_cheaper_are_not_kept_together() -> None:
    assert SelfTuning().plan(View(8, 8, 7.0, curve=_BY_THE_ROW)).most_rows == 8  # but no call more than need be
    dear = CostCurve((1, 2, 4, 8), (0.01, 0.02, 0.04, 0.2))
    assert SelfTuning().plan(View(8, 8, 7.0, curve=dear)) == (7.0, 4, "full", 4, True)
    assert SelfTuning().plan(View(3, 8, 7.0, curve=_BY_THE_ROW)).rows == 2  # 2 and 1, not 4


def test_a_batch_that_explores_takes_the_next_larger_size_if_time_allows() -> None:
    dear = CostCurve((1, 2, 4, 8), (0.01, 0.02, 0.04, 0.2))
    assert SelfTuning().plan(View(8, 8, 7.0, curve=dear, explores=True)) == (7.0, 8, "full", 8, True)
    assert SelfTuning().plan(View(8, 8, 7.0, curve=dear, explores=True, timeout_s=0.3)).rows == 4
    assert SelfTuning(BatchingOptions(max_batch_size=4)).plan(View(8, 8, 7.0, curve=dear, explores=True)).rows == 4
    assert SelfTuning().plan(View(3, 8, 7.0, curve=_BY_THE_ROW, explores=True)).rows == 8  # 3 rows as 4, not 2 and 1


def test_exploring_changes_no_estimate_of_admission() -> None:
    dear = CostCurve((1, 2, 4, 8), (0.01, 0.02, 0.04, 0.2))
    assert SelfTuning().most_rows(View(8, 8, 7.0, curve=dear, explores=True)) == 4
