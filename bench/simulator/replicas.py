"""Many replicas behind a load balancer in simulated time: each is Ferry's batcher, all under one clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.request import LaneKey, PendingRequest
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.planning.measured_curve import MeasuredCurve
from bench.simulator.balancers import Balancer
from bench.simulator.simulated_time import run_in_fake_time
from bench.simulator.simulation import Arrival, ExecutedCalls, SimulatedDevice, TimedReply, function_of

#: Long enough that no request of these runs expires.
_DEADLINE_S = 30.0

_KEY = LaneKey("m", 1, "serving_default")

_QUEUE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class CurveCosts:
    """Calls that cost what a curve says, and vary as it says."""

    curve: MeasuredCurve
    random: np.random.Generator

    def call_s(self, rows: int, length: float = 1.0) -> float:
        return length * self.curve.costs.call_s(rows)

    def took_s(self, rows: int, length: float = 1.0) -> float:
        spread = self.curve.spread
        return self.call_s(rows, length) * spread[int(self.random.integers(len(spread)))]

    def around_s(self, rows: int) -> float:  # noqa: ARG002 - whose costs these are serves in no time
        return 0.0


@dataclass(frozen=True, slots=True)
class ReplicasOutcome:
    """Latencies of all requests, in seconds. busy, mean_batch: as of QueueFigures, over all replicas.

    most_share: of all requests those that the busiest replica got, times the number of replicas.
    """

    p50_s: float
    p99_s: float
    busy: float
    mean_batch: float
    most_share: float
    rejected: int


class _Replica:
    def __init__(self, curve: MeasuredCurve, target_p99_s: float, seed: int) -> None:
        policy = SelfTuning(BatchingOptions(target_p99_ms=1e3 * target_p99_s))
        self.calls = ExecutedCalls(policy)
        devices = [SimulatedDevice(hardware) for hardware in range(curve.slots)]
        clock = asyncio.get_running_loop().time
        self.batcher = Batcher(devices, policy, BatcherOptions(_QUEUE_ROWS, admission=False), self.calls.heard, clock)
        costs = CurveCosts(curve, np.random.default_rng(seed))
        self.function = function_of(1.0, costs, BatchSizes(tuple(sorted(curve.seconds))), devices)


def simulate_replicas(
    arrivals: Sequence[Arrival],
    curve: MeasuredCurve,
    replicas: int,
    balancer: Balancer,
    target_p99_s: float,
    *,
    warm_up_share: float = 0.05,
    request_rows: int = 1,
) -> ReplicasOutcome:
    """Args: arrivals: in order of time; the first of them are not counted, as `warm_up_share` says."""
    return run_in_fake_time(_play(arrivals, curve, replicas, balancer, target_p99_s, warm_up_share, request_rows))


async def _play(  # noqa: PLR0917 - `simulate_replicas` names them
    arrivals: Sequence[Arrival],
    curve: MeasuredCurve,
    replicas: int,
    balancer: Balancer,
    target_p99_s: float,
    warm_up_share: float,
    request_rows: int,
) -> ReplicasOutcome:
    loop = asyncio.get_running_loop()
    all_replicas = [_Replica(curve, target_p99_s, seed) for seed in range(replicas)]
    begin_s = loop.time()
    callers = _Callers(arrivals, all_replicas, balancer, request_rows)
    await asyncio.sleep(arrivals[-1].at_s + _DEADLINE_S)
    took_s = np.array([reply.took_s for reply in callers.replies[int(warm_up_share * len(arrivals)) :]])
    calls = [each.calls for each in all_replicas]
    ended_s = max(reply.answered_s for reply in callers.replies) - begin_s
    for each in all_replicas:
        await each.batcher.drain()
    return ReplicasOutcome(
        p50_s=float(np.quantile(took_s, 0.5)),
        p99_s=float(np.quantile(took_s, 0.99)),
        busy=sum(each.busy_s for each in calls) / (replicas * curve.slots * ended_s),
        mean_batch=sum(each.rows for each in calls) / sum(each.count for each in calls),
        most_share=max(callers.sent) / len(arrivals) * replicas,
        rejected=callers.rejected,
    )


class _Callers:
    """Send each request at its time to the replica that the balancer chooses."""

    def __init__(
        self, arrivals: Sequence[Arrival], replicas: Sequence[_Replica], balancer: Balancer, request_rows: int
    ) -> None:
        self.replies: list[_CountedReply] = []
        self.sent = [0] * len(replicas)
        self.rejected = 0
        self._arrivals = arrivals
        self._replicas = replicas
        self._balancer = balancer
        self._unanswered = [0] * len(replicas)
        self._rows = request_rows
        self._inputs = {"x": np.zeros((request_rows, 1), np.float32)}
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time()
        self._plan(0)

    def _plan(self, place: int) -> None:
        if place < len(self._arrivals):
            self._loop.call_at(self._begin_s + self._arrivals[place].at_s, self._send, place)

    def _send(self, place: int) -> None:
        self._plan(place + 1)
        number = self._balancer(self._unanswered)
        replica, reply = self._replicas[number], _CountedReply(self._loop, self._unanswered, number)
        self.sent[number] += 1
        deadline_s = self._loop.time() + _DEADLINE_S
        try:
            replica.batcher.submit(
                _KEY, replica.function, PendingRequest(self._inputs, self._rows, reply, self._loop.time(), deadline_s)
            )
        except ServingError:
            self.rejected += 1
            return
        self._unanswered[number] += 1
        self.replies.append(reply)


class _CountedReply(TimedReply):
    """Tells the balancer that its replica has answered."""

    __slots__ = ("_number", "_unanswered")

    def __init__(self, loop: asyncio.AbstractEventLoop, unanswered: list[int], number: int) -> None:
        super().__init__(loop)
        self._unanswered, self._number = unanswered, number

    def set_result(self, result: object, /) -> None:
        self._unanswered[self._number] -= 1
        super().set_result(result)

    def set_exception(self, exception: Exception, /) -> None:
        self._unanswered[self._number] -= 1
        super().set_exception(exception)
