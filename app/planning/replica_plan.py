"""The plan of replicas that answer a rate within a latency, their costs, and the effect of a lost node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, ulp
from reprlib import repr as shorten

from app.batching.costs.cost_model import DEVIATIONS
from app.batching.policy import HEADROOM
from app.core.batch_sizes import MOST_BATCH_ROWS
from app.planning.batch_queue import Calls, QueueFigures, play
from app.planning.measured_curve import CannotPlan, MeasuredCurve

#: The precision of a replica's highest rate, as a share. Chosen.
_RATE_STEPS = 0.01

#: The number of nodes up to which costs are compared. Chosen.
_NODES_COMPARED = 1000

#: The factor by which the core's estimate of the deviation, an average over 16 calls, is above or below the true one at
#: times. Where it decides about a size, the core sometimes gives the size up, and the queue grows, or sometimes takes
#: it, and calls are longer. Chosen; without it p99s of `bench.scaling` were six times the planned ones.
_UNSTEADY = 1.5

#: The factor by which a rate that is too high is lowered at once. Chosen.
_STEP_DOWN = 0.5

#: The most requests a second of a replica. Chosen: a third of the rate of a tiny model with JSON on two cores
#: (bench/results/peers.md); `ferry bench` measures a machine.
SERVER_RATE = 10_000.0

#: The most replicas of a plan: more is a mistake of units. Chosen.
MOST_REPLICAS = 100_000


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand for a plan.

    Attributes:
        rate: requests a second on average, of all clients together.
        p99_s: the time within which 99 of 100 requests are answered, from their arrival at a replica.
        request_rows: rows of a request.
        burst: the rate in bursts of 0.3 s as a multiple of the mean rate, 1 to 2; as much less between them.
        headroom: the share of a replica's capacity that the plan leaves free.
        server_rate: the most requests a second of one replica for HTTP and JSON, whatever its device does.
        node_replicas: the replicas of a node, which are lost with it.
        spare_nodes: the nodes that may be lost while the target still holds.

    Raises:
        CannotPlan: a value is out of its bounds.
    """

    rate: float
    p99_s: float
    request_rows: int = 1
    burst: float = 1.0
    headroom: float = 0.2
    server_rate: float = SERVER_RATE
    node_replicas: int = 1
    spare_nodes: int = 1

    def __post_init__(self) -> None:
        for name, value, least, most, expected in (
            ("rate", self.rate, 1e-3, 1e9, "from 0.001 to 1e9 requests a second"),
            ("p99", 1e3 * self.p99_s, ulp(0.0), 3.6e6, "above 0, at most 3,600,000 ms"),
            ("rows", self.request_rows, 1, MOST_BATCH_ROWS, f"from 1 to {MOST_BATCH_ROWS}"),
            ("burst", self.burst, 1, 2, "from 1 (none) to 2 times the mean rate"),
            ("headroom", self.headroom, 0, 0.9, "from 0 to 0.9"),
            ("server rate", self.server_rate, 1e-3, 1e5, "from 0.001 to 100,000 requests a second"),
            ("node replicas", self.node_replicas, 1, MOST_REPLICAS, f"from 1 to {MOST_REPLICAS}"),
            ("spare nodes", self.spare_nodes, 0, MOST_REPLICAS, f"from 0 to {MOST_REPLICAS}"),
        ):
            if not least <= value <= most:  # nan is in no bounds
                raise CannotPlan(f"{name} is {_shown(value)}, but should be {expected}")


def _shown(value: float) -> str:
    """A value as text; a whole number may be too large to be converted."""
    return f"{value:g}" if isinstance(value, float) else shorten(value)


@dataclass(frozen=True, slots=True)
class Loss:
    """The effect of lost nodes at the planned rate.

    replicas: the replicas that are left.
    figures: of these replicas; None if they are overloaded.
    answered: the share of requests that they can answer; the rest is rejected with 503.
    """

    replicas: int
    figures: QueueFigures | None
    answered: float


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """The plan for a demand on one kind of machine.

    Attributes:
        batch_rows: rows of a full batch, as `self_tuning` chooses them for this target.
        most_rate: the most requests a second that one replica answers within the target.
        limit: of that rate: "p99", "capacity" (of the device, less the headroom) or "server".
        at_most: the figures of one replica at that rate.
        needed: the replicas that the rate needs; `replicas` also counts the replicas of spare nodes.
        usual: the figures of one of `replicas` at its share of the rate.
        loss: the effect of one node less than planned.
    """

    curve: MeasuredCurve
    demand: Demand
    batch_rows: int
    most_rate: float
    limit: str
    at_most: QueueFigures
    needed: int
    usual: QueueFigures
    loss: Loss

    @property
    def replicas(self) -> int:
        return self.needed + self.demand.spare_nodes * self.demand.node_replicas

    @property
    def nodes(self) -> int:
        return ceil(self.replicas / self.demand.node_replicas)

    @property
    def replica_rate(self) -> float:
        """The requests a second of each replica while no node is lost."""
        return self.demand.rate / self.replicas


def plan(curve: MeasuredCurve, demand: Demand) -> ReplicaPlan:
    """The fewest replicas that meet the demand. Raises CannotPlan: no number of them does."""
    replica = _Replica.of(curve, demand)
    most_rate, limit, at_most = _most_rate(replica, curve.machine, demand)
    needed = ceil(demand.rate / most_rate)
    if needed > MOST_REPLICAS:
        raise CannotPlan(f"rate is {demand.rate:g}, which would need {needed:,} replicas; at most {MOST_REPLICAS:,}")
    replicas = needed + demand.spare_nodes * demand.node_replicas
    if replicas > MOST_REPLICAS:
        raise CannotPlan(
            f"spare nodes is {demand.spare_nodes} with {demand.node_replicas} replicas each, which would make "
            f"{replicas:,} replicas; at most {MOST_REPLICAS:,}"
        )
    usual = replica.play(demand.rate / replicas)
    lost = _loss(replica, demand, replicas - demand.node_replicas)
    return ReplicaPlan(curve, demand, replica.most_rows, most_rate, limit, at_most, needed, usual, lost)


@dataclass(frozen=True, slots=True)
class _Replica:
    """One replica, with the least and the largest full batch that `self_tuning` forms for the target."""

    calls: Sequence[Calls]
    burst: float

    @classmethod
    def of(cls, curve: MeasuredCurve, demand: Demand) -> _Replica:
        costs, largest = curve.costs, max(curve.seconds)
        if demand.request_rows > largest:
            raise CannotPlan(f"rows is {demand.request_rows}, but should be at most {largest}, the largest measured")
        deviation = sum(min(abs(each - 1), 1.0) for each in curve.spread) / len(curve.spread)

        # As SelfTuning does: a call takes half of the time, because the call before it takes the other half.
        call_s = [
            HEADROOM / 2 * demand.p99_s / (1 + DEVIATIONS * times * deviation) for times in (_UNSTEADY, 1 / _UNSTEADY)
        ]
        most_rows = [min(largest, costs.rows_within(each)) for each in call_s]
        sizes = {max(demand.request_rows, costs.efficient_within(each)) for each in most_rows}
        spread = tuple(curve.spread)
        return cls(
            [Calls(costs, rows, demand.request_rows, curve.slots, spread) for rows in sorted(sizes)], demand.burst
        )

    @property
    def most_rows(self) -> int:
        """The rows that any full batch has room for."""
        return self.calls[0].most_rows

    @property
    def capacity(self) -> float:
        return min(each.capacity for each in self.calls)

    def play(self, rate: float) -> QueueFigures:
        """The figures with smaller or with larger batches, whichever have the higher p99."""
        return max((play(each, rate, self.burst) for each in self.calls), key=lambda figures: figures.p99_s)


def _most_rate(replica: _Replica, machine: str, demand: Demand) -> tuple[float, str, QueueFigures]:
    """The highest rate of one replica with p99 within the target and the headroom left; its limit; and its figures."""
    # 1. The most that the replica could compute, or take.
    high = min((1 - demand.headroom) * replica.capacity, demand.server_rate)
    figures = replica.play(high)
    if figures.p99_s <= demand.p99_s:
        return high, "server" if high == demand.server_rate else "capacity", figures

    # 2. A rate that is low enough.
    low = _STEP_DOWN * high
    while (figures := replica.play(low)).p99_s > demand.p99_s:
        if low < replica.capacity / 1000:
            raise CannotPlan(
                f"p99 is {1e3 * demand.p99_s:g} ms, but should be more than {1e3 * figures.p99_s:.3g} ms on "
                f"{machine}: so long takes 1 of 100 requests that are alone"
            )
        low, high = _STEP_DOWN * low, low

    # 3. The highest rate between both.
    while high > (1 + _RATE_STEPS) * low:
        middle = (low * high) ** 0.5
        tried = replica.play(middle)
        if tried.p99_s <= demand.p99_s:
            low, figures = middle, tried
        else:
            high = middle
    return low, "p99", figures


def _loss(replica: _Replica, demand: Demand, left: int) -> Loss:
    if left < 1:
        return Loss(0, None, 0.0)
    rate = demand.rate / left
    most = min(replica.capacity, demand.server_rate)
    if rate >= replica.capacity or rate > demand.server_rate * (1 + 1e-9):
        return Loss(left, None, most / rate)
    return Loss(left, replica.play(rate), 1.0)


# --- money ---


def cost_an_hour(planned: ReplicaPlan, price: float) -> float:
    """The costs of a plan an hour. `price`: of a node an hour."""
    return planned.nodes * price


def cheaper_from(planned: ReplicaPlan, price: float, other: ReplicaPlan, other_price: float) -> float | None:
    """The rate, in requests a second, from which on `planned` costs less than `other`; 0 if it always does.

    None if it costs more at 1000 nodes of the other. Both are plans for the same demand.
    """
    node_rate = other.demand.node_replicas * other.most_rate
    found: float | None = None
    for nodes in range(1, _NODES_COMPARED + 1):
        # The other's costs are the same up to the rate that fills its nodes, where this plan's are highest.
        most_rate = nodes * node_rate
        if price * _nodes_for(planned, most_rate) >= other_price * _nodes_for(other, most_rate):
            found = None
        elif found is None:
            found = most_rate - node_rate
    return found


def _nodes_for(planned: ReplicaPlan, rate: float) -> int:
    """The nodes for a rate. A rate that just fills its replicas needs no further one for rounding errors."""
    needed = ceil(rate / planned.most_rate - 1e-9)
    return ceil(needed / planned.demand.node_replicas) + planned.demand.spare_nodes
