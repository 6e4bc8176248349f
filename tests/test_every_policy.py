"""The contract of a batching policy, over all that are registered."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.policy import WorkConserving, create_policy, policy_names


@dataclass
class View:
    rows: int
    max_rows: int
    oldest_arrival_s: float


views = st.builds(View, st.integers(1, 1000), st.integers(1, 128), st.floats(0, 1e6))


@pytest.mark.parametrize("name", policy_names())
@given(view=views, delay_s=st.floats(0, 1))
def test_contract(name: str, view: View, delay_s: float) -> None:
    policy = create_policy(name, delay_s)
    plan = policy.plan(view)
    assert plan == policy.plan(view)  # stateless
    assert 1 <= plan.rows <= view.max_rows
    assert view.oldest_arrival_s <= plan.due_s <= view.oldest_arrival_s + delay_s  # timers start at the oldest
    assert plan.reason in {"full", "idle", "delay"}
    if view.rows >= view.max_rows:
        assert plan.due_s == view.oldest_arrival_s  # nobody waits for company that has no seat


def test_work_conserving_reasons() -> None:
    assert WorkConserving(0.0).plan(View(3, 4, 7.0)) == (7.0, 4, "idle")
    assert WorkConserving(0.5).plan(View(3, 4, 7.0)) == (7.5, 4, "delay")
    assert WorkConserving(0.5).plan(View(4, 4, 7.0)) == (7.0, 4, "full")
