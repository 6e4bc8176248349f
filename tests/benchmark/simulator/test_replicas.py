"""Many replicas behind a load balancer, under one clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from app.planning.measured_curve import MeasuredCurve
from bench.simulator.arrivals import poisson
from bench.simulator.balancers import BALANCERS
from bench.simulator.replicas import ReplicasOutcome, simulate_replicas
from bench.simulator.simulation import Arrival

CURVE = MeasuredCurve("cpu", "m", "serving_default", {rows: 0.008 + 0.0008 * rows for rows in (1, 2, 4, 8, 16)})


def outcome(balancer: str, replicas: int, rate: float = 400.0, seconds: float = 2.0) -> ReplicasOutcome:
    random = np.random.default_rng(1)
    arrivals = poisson(random, rate, seconds)
    return simulate_replicas(arrivals, CURVE, replicas, BALANCERS[balancer](random, replicas), 1.0)


@pytest.mark.parametrize("balancer", BALANCERS)
def test_a_balancer_chooses_among_all_replicas_and_no_other(balancer: str) -> None:
    choose, unanswered = BALANCERS[balancer](np.random.default_rng(1), 4), [0] * 4
    chosen = Counter(choose(unanswered) for _ in range(4000))
    assert chosen.keys() <= set(range(4))
    assert len(chosen) == 4 or balancer == "8 connections"


def test_a_loaded_replica_is_avoided_by_those_who_look() -> None:
    unanswered = [5, 0, 5, 5]
    least = BALANCERS["least request"](np.random.default_rng(1), 4)
    assert {least(unanswered) for _ in range(50)} == {1}
    of_two = BALANCERS["least of two"](np.random.default_rng(1), 4)
    share = sum(of_two(unanswered) == 1 for _ in range(4000)) / 4000
    assert share == pytest.approx(1 - (3 / 4) ** 2, abs=0.03)  # it is one of both that are drawn


def test_few_connections_share_unequally() -> None:
    assert outcome("round robin", 4).most_share == pytest.approx(1.0, abs=0.01)
    assert outcome("8 connections", 4).most_share > 1.2


def test_a_lone_request_takes_its_call_on_any_replica() -> None:
    found = simulate_replicas([Arrival(1.0)], CURVE, 3, lambda _: 2, 1.0)
    assert found.p99_s == pytest.approx(0.0088)
    assert found.mean_batch == 1.0
    assert found.most_share == 3.0


def test_replicas_do_not_wait_for_each_other() -> None:
    """Two requests at the same time: one after the other on one replica, or at once on two, or on two slots."""
    pair, curve = [Arrival(1.0), Arrival(1.0)], MeasuredCurve("cpu", "m", "s", {1: 0.01})
    turns = iter([0, 1])
    assert simulate_replicas(pair, curve, 1, lambda _: 0, 1.0).p99_s == pytest.approx(0.02, rel=0.01)
    assert simulate_replicas(pair, curve, 2, lambda _: next(turns), 1.0).p99_s == pytest.approx(0.01)
    assert simulate_replicas(pair, replace(curve, slots=2), 1, lambda _: 0, 1.0).p99_s == pytest.approx(0.01)


def test_what_is_computed_is_what_came() -> None:
    found = outcome("random", 2)
    assert found.rejected == 0
    assert 0 < found.busy <= 1
    assert 1 <= found.mean_batch <= 16
