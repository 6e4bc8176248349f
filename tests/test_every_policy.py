"""The contract of a batching policy, over all that are registered."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.policy import WorkConserving, create_policy, policy_names


@dataclass
class View:
    rows: int
    max_rows: int
    oldest_arrival_s: float
    call_s: float = 0.0
    peak_rows: float = 0.0


views = st.builds(
    View, st.integers(1, 1000), st.integers(1, 128), st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 2000)
)


@pytest.mark.parametrize("name", policy_names())
@given(view=views, delay_s=st.floats(0, 1), pause_s=st.floats(0, 0.01), idle_for_s=st.floats(0, 10))
def test_contract(name: str, view: View, delay_s: float, pause_s: float, idle_for_s: float) -> None:
    policy = create_policy(name, delay_s, pause_s)
    idle_since_s = view.oldest_arrival_s - idle_for_s
    plan = policy.plan(view, idle_since_s)
    assert plan == policy.plan(view, idle_since_s)  # stateless
    assert 1 <= plan.rows <= view.max_rows
    # Timers start at the oldest request, and at the end of the last call where there was one just now.
    assert view.oldest_arrival_s <= plan.due_s <= max(view.oldest_arrival_s + delay_s, idle_since_s + pause_s)
    assert plan.reason in {"full", "idle", "pause", "delay"}
    if view.rows >= view.max_rows:
        assert plan.due_s == view.oldest_arrival_s  # nobody waits for company that has no seat


def test_work_conserving_reasons() -> None:
    assert WorkConserving(0.0).plan(View(3, 4, 7.0), -inf) == (7.0, 4, "idle")
    assert WorkConserving(0.5).plan(View(3, 4, 7.0), -inf) == (7.5, 4, "delay")
    assert WorkConserving(0.5).plan(View(4, 4, 7.0), -inf) == (7.0, 4, "full")


@pytest.mark.parametrize(
    ("rows", "peak_rows", "call_s", "pause_s"),
    [
        (2, 16, 1 / 64, 8 / 64),  # eight calls long
        (2, 16, 3 / 16, 1 / 16),  # the longest pause counts from the start of the call
        (2, 16, 1 / 4, 0.0),  # no short call
        (2, 16, 0.0, 0.0),  # nothing measured yet
        (16, 16, 1 / 64, 0.0),  # everyone is here
        (1, 1, 1 / 64, 0.0),  # a lone client
    ],
)
def test_a_device_pauses_after_a_short_call_until_everyone_is_there(
    rows: int, peak_rows: float, call_s: float, pause_s: float
) -> None:
    plan = WorkConserving(max_pause_s=1 / 4).plan(View(rows, 64, 7.0, call_s, peak_rows), idle_since_s=7.0)
    assert plan == (7.0 + pause_s, 64, "pause" if pause_s else "idle")


def test_a_pause_is_over_when_the_device_has_been_idle_for_long() -> None:
    view = View(2, 64, 7.0, call_s=1 / 64, peak_rows=16)
    assert WorkConserving(max_pause_s=1 / 4).plan(view, idle_since_s=6.0) == (7.0, 64, "idle")
