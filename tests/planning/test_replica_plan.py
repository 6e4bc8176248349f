from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.planning.measured_curve import CannotPlan
from app.planning.replica_plan import Demand, ReplicaPlan, cheaper_from, cost_an_hour, plan
from tests.planning.curves import curve_of

CPU = curve_of(0.008, 0.0008)
GPU = curve_of(0.004, 0.00005, machine="gpu")
CPU_PLAN, GPU_PLAN = (plan(curve, Demand(3000.0, 0.1)) for curve in (CPU, GPU))


@settings(max_examples=10, deadline=None)
@given(st.floats(10, 50_000), st.floats(0.03, 1.0), st.sampled_from([1.0, 1.5]), st.integers(1, 2))
def test_a_plan_meets_its_demand_with_a_node_less(rate: float, p99_s: float, burst: float, slots: int) -> None:
    planned = plan(curve_of(0.008, 0.0008, slots=slots), Demand(rate, p99_s, burst=burst))
    assert planned.loss.figures is not None
    assert planned.usual.p99_s <= planned.loss.figures.p99_s * 1.05
    assert planned.loss.figures.p99_s <= p99_s * 1.05  # of another draw than that of the highest rate
    assert planned.needed * planned.most_rate >= rate > (planned.needed - 1) * planned.most_rate
    assert planned.replica_rate * planned.replicas == pytest.approx(rate)


def test_the_batch_leaves_time_for_the_call_before_it() -> None:
    for p99_ms in (30, 50, 100, 200):
        planned = plan(CPU, Demand(1000.0, p99_ms / 1e3))
        assert 2 * CPU.costs.call_s(planned.batch_rows) <= p99_ms / 1e3


def test_calls_that_vary_have_smaller_batches() -> None:
    demand = Demand(1000.0, 0.05)
    assert plan(curve_of(0.008, 0.0008, spread=(0.7, 1.3)), demand).batch_rows < plan(CPU, demand).batch_rows


def test_headroom_is_left_of_the_capacity() -> None:
    wide = Demand(1000.0, 10.0, headroom=0.5)
    planned = plan(CPU, wide)
    assert planned.limit == "capacity"
    assert planned.most_rate == pytest.approx(0.5 * 64 / CPU.costs.call_s(64))


def test_requests_of_several_rows_cost_their_rows() -> None:
    one, four = (plan(CPU, Demand(1000.0, 0.2, request_rows=rows)) for rows in (1, 4))
    assert four.most_rate == pytest.approx(one.most_rate / 4, rel=0.05)


def test_http_is_a_limit_too() -> None:
    planned = plan(GPU, Demand(5000.0, 0.1, server_rate=1000.0))
    assert (planned.limit, planned.needed) == ("server", 5)


def test_a_lost_node_takes_its_replicas_along() -> None:
    spare = plan(CPU, Demand(3000.0, 0.1, node_replicas=4))
    assert spare.replicas == spare.needed + 4
    assert spare.loss.replicas == spare.needed
    tight = plan(CPU, Demand(3000.0, 0.1, headroom=0.0, node_replicas=2, spare_nodes=0))
    assert tight.replicas == tight.needed
    assert tight.loss.figures is None
    assert tight.loss.answered == pytest.approx((tight.needed - 2) * 32 / CPU.costs.call_s(32) / 3000.0, rel=0.01)


def test_the_loss_of_the_only_node_leaves_nothing() -> None:
    assert plan(CPU, Demand(10.0, 0.1, spare_nodes=0)).loss.answered == 0.0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"rate": 0.0}, "rate is 0, but should be from 0.001"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"rate": float("inf")}, "rate is inf"),
        ({"p99_s": 0.0}, "p99 is 0, but"),
        ({"request_rows": 0}, "rows is 0"),
        ({"burst": 2.5}, "burst is 2.5, but should be from 1"),
        ({"headroom": 1.0}, "headroom is 1, but"),
        ({"server_rate": 0.0}, "server rate is 0"),
        ({"node_replicas": 0}, "node replicas is 0"),
        ({"spare_nodes": -1}, "spare nodes is -1"),
        ({"server_rate": 1e-300}, "server rate is 1e-300, but should be from 0.001"),
        ({"request_rows": 10**400}, "rows is 1000.*, but should be from 1 to 1048576"),
        ({"node_replicas": 10**400}, "node replicas is 1000.*, but should be from 1 to 100000"),
        ({"spare_nodes": 10**400}, "spare nodes is 1000.*, but should be from 0 to 100000"),
    ],
)
def test_a_wrong_demand_is_named(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(CannotPlan, match=text):
        Demand(**{"rate": 1.0, "p99_s": 1.0, **wrong})  # type: ignore[arg-type]  # as a command line has them


def test_what_no_number_of_replicas_answers_is_told() -> None:
    with pytest.raises(CannotPlan, match=r"p99 is 5 ms, but should be more than 8\.8 ms on cpu"):
        plan(CPU, Demand(100.0, 0.005))
    with pytest.raises(CannotPlan, match="rows is 65, but should be at most 64"):
        plan(CPU, Demand(100.0, 1.0, request_rows=65))
    with pytest.raises(CannotPlan, match=r"rate is 1e\+09, which would need"):
        plan(CPU, Demand(1e9, 1.0))
    with pytest.raises(
        CannotPlan, match=r"spare nodes is 1000 with 100 replicas each, which would make 100,001 replicas"
    ):
        plan(CPU, Demand(1.0, 1.0, node_replicas=100, spare_nodes=1000))


# --- money ---


def brute_force_cost(planned: ReplicaPlan, price: float, rate: float) -> float:
    nodes = 1
    while nodes * planned.demand.node_replicas * planned.most_rate < rate * (1 - 1e-9):
        nodes += 1
    return price * (nodes + planned.demand.spare_nodes)


@given(st.floats(0.5, 30.0), st.integers(1, 3), st.integers(0, 2))
def test_break_even_is_where_costs_cross(gpu_price: float, node_replicas: int, spare_nodes: int) -> None:
    demand = Demand(3000.0, 0.1, node_replicas=node_replicas, spare_nodes=spare_nodes)
    cpu, gpu = (replace(planned, demand=demand) for planned in (CPU_PLAN, GPU_PLAN))
    since = cheaper_from(gpu, gpu_price, cpu, 1.0)
    for share in (1.001, 1.3, 2.0, 10.0):
        rate = share * max(since or 0.0, 100.0)
        if since is not None:
            assert brute_force_cost(gpu, gpu_price, rate) < brute_force_cost(cpu, 1.0, rate)
    if since:
        assert brute_force_cost(gpu, gpu_price, 0.999 * since) >= brute_force_cost(cpu, 1.0, 0.999 * since)


def test_a_machine_that_is_dearer_for_each_request_never_pays() -> None:
    cpu, gpu = CPU_PLAN, GPU_PLAN
    assert cheaper_from(gpu, 100.0, cpu, 1.0) is None
    assert cheaper_from(cpu, 1.0, gpu, 100.0) == 0.0
    assert cost_an_hour(gpu, 2.5) == 2.5 * gpu.nodes
