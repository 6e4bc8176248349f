"""What is left of the goodput when far more arrives than can be answered: all of it, in simulated time."""

from __future__ import annotations

import numpy as np
import pytest

from app.batching.policy import SelfTuning
from bench.simulator.arrivals import mixed
from bench.simulator.simulation import Arrival, CallCosts, LinearCosts, Outcome, simulate

COSTS = LinearCosts(0.008, 0.0008)
CAPACITY = 64 / COSTS.call_s(64)
DEADLINE_S = 0.1


def overloaded(
    times: float,
    lengths: tuple[float, ...] = (1.0,),
    *,
    admission: bool = True,
    costs: CallCosts = COSTS,
    deadline_s: float = DEADLINE_S,
) -> Outcome:
    """20 times the deadline long so many times the capacity."""
    random = np.random.default_rng(7)
    at_s = np.cumsum(random.exponential(1 / (times * CAPACITY), int(times * CAPACITY * 20 * deadline_s)))
    arrivals = [Arrival(float(at), float(random.choice(lengths))) for at in at_s]
    return simulate(arrivals, SelfTuning(), costs=costs, deadline_s=deadline_s, admission=admission)


@pytest.fixture(scope="module")
def peak() -> float:
    return max(overloaded(times).goodput for times in (0.8, 0.9, 1.0))


@pytest.mark.parametrize("times", [2, 10])
def test_goodput_stays_and_what_is_accepted_is_in_time(times: float, peak: float) -> None:
    outcome = overloaded(times)
    assert outcome.goodput >= 0.9 * peak
    assert outcome.p99_s < DEADLINE_S
    assert outcome.expired_executions == 0


def test_below_its_limit_no_request_is_rejected() -> None:
    outcome = overloaded(0.7)
    assert outcome.accepted == outcome.in_time == outcome.arrived


def test_without_admission_it_does_not_stay(peak: float) -> None:
    """The test above can fail."""
    assert overloaded(2, admission=False).goodput < 0.9 * peak


class CostlyTurns(LinearCosts):
    """Between two calls passes time that is no call's cost."""

    def around_s(self, rows: int) -> float:
        return 0.003


@pytest.mark.parametrize("times", [1.2, 2, 10])
def test_what_no_cost_tells_is_learnt_from_late_answers(times: float) -> None:
    """Without that 65, 36 and 5 % of what was accepted came in time."""
    outcome = overloaded(times, costs=CostlyTurns(), deadline_s=0.5)
    assert outcome.in_time >= 0.9 * outcome.accepted
    assert outcome.goodput >= 0.9 * CAPACITY


@pytest.mark.parametrize("times", [1.2, 2, 10])
def test_with_several_lanes_what_is_accepted_is_in_time_but_for_one_in_a_hundred(times: float) -> None:
    outcome = overloaded(times, (0.25, 0.5, 1.0, 2.0))
    assert outcome.in_time >= 0.99 * outcome.accepted
    assert outcome.p99_s < DEADLINE_S
    assert outcome.expired_executions == 0


def test_lanes_of_several_lengths_are_not_rejected_for_more_work_than_is_ahead() -> None:
    """A lane that was counted as if it waited for itself and for less urgent ones: 608 of 1000 were accepted then."""
    arrivals = mixed(np.random.default_rng(1), 0.9 * CAPACITY, 5.0)
    outcome = simulate(arrivals, SelfTuning(), costs=COSTS, deadline_s=DEADLINE_S, admission=True)
    assert outcome.in_time >= 0.75 * outcome.arrived
