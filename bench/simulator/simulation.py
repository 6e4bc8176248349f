"""One run of Ferry's batcher in simulated time: given arrivals, given costs, any policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from app.batching.batch import Execution
from app.batching.batcher import Batcher
from app.batching.function import BatchFunction
from app.batching.policy import BatchingPolicy
from app.batching.request import LaneKey, PendingRequest
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.events import BatchExecuted, Event
from app.core.inference import Array
from bench.simulator.peer_policies import AdditiveIncrease
from bench.simulator.simulated_time import run_in_fake_time

T = TypeVar("T")


class CallCosts(Protocol):
    """What calls with `rows` rows, padding counted, of inputs of some length cost, in seconds."""

    def call_s(self, rows: int, length: float = 1.0) -> float:
        """On average."""

    def took_s(self, rows: int, length: float = 1.0) -> float:
        """One of them."""

    def around_s(self, rows: int) -> float:
        """How long the device waits for the server after a call, in seconds."""


@dataclass(frozen=True, slots=True)
class LinearCosts:
    """A fixed part and one for each row."""

    fixed_s: float = 0.008
    row_s: float = 0.0008

    def call_s(self, rows: int, length: float = 1.0) -> float:
        return self.fixed_s + self.row_s * length * rows

    def took_s(self, rows: int, length: float = 1.0) -> float:
        return self.call_s(rows, length)

    def around_s(self, rows: int) -> float:  # noqa: ARG002 - whose costs these are serves in no time
        return 0.0


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Of calls whose inputs are all alike.

    alone: seconds by rows where nothing else ran.
    times, weights: how many times as long calls of a server took, and how likely each is: by the seconds of its call
    alone, since short calls vary more than long ones.
    around_row_s: what the server did for each row while its device waited.
    """

    alone: Mapping[int, float]
    times: Sequence[float]
    weights: Sequence[float]
    around_row_s: float
    random: np.random.Generator

    @property
    def level(self) -> float:
        """How many times as long calls took, all together."""
        return float(np.average(self.times, weights=self.weights))

    def call_s(self, rows: int, length: float = 1.0) -> float:
        return self.level * self.alone[rows] * length

    def took_s(self, rows: int, length: float = 1.0) -> float:
        likely = np.array(self.weights) / sum(self.weights)
        return float(self.random.choice(self.times, p=likely)) * self.alone[rows] * length

    def around_s(self, rows: int) -> float:
        return self.around_row_s * rows


class Arrival(NamedTuple):
    """A request of one row. `length` (1 on average) scales what a row costs; equal lengths share calls."""

    at_s: float
    length: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    goodput: answers in time, per second. p99_s: of what was accepted. use: share of the time in which the device was
    busy. mean_batch: rows in a call. expired_executions: requests that were computed though their time was over.
    """

    arrived: int
    accepted: int
    in_time: int
    goodput: float
    p99_s: float
    use: float
    mean_batch: float
    expired_executions: int


class SimulatedDevice:
    """Computes at once, and reports it when the call and the server's work around it would have ended.

    `hardware`: devices of different hardware compute at the same time.
    """

    name = "simulated"
    replica = 0

    def __init__(self, hardware: int = 0) -> None:
        self.hardware = hardware
        self.call_s = self.around_s = 0.0

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        result: Any = work()
        assert isinstance(result, Execution)
        result = result._replace(ended_s=result.started_s + self.call_s)
        asyncio.get_running_loop().call_later(self.call_s + self.around_s, done, result)

    def failure(self, now: float) -> str:  # noqa: ARG002 - the seam's signature
        return ""

    def close(self) -> None:
        """Holds nothing."""


class TimedReply:
    """Records when it was sent, when it was answered, and with what."""

    __slots__ = ("answered_s", "error", "loop", "sent_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.sent_s = loop.time()
        self.answered_s = 0.0
        self.error: Exception | None = None

    @property
    def took_s(self) -> float:
        return self.answered_s - self.sent_s

    def done(self) -> bool:
        return self.answered_s > 0

    def set_result(self, _result: Any, /) -> None:
        self.answered_s = self.loop.time()

    def set_exception(self, exception: Exception, /) -> None:
        self.answered_s, self.error = self.loop.time(), exception


def simulate(
    arrivals: Sequence[Arrival],
    policy: BatchingPolicy,
    *,
    costs: CallCosts | None = None,
    deadline_s: float = 0.1,
    admission: bool = False,
    max_queue_rows: int = 8192,
    sizes: BatchSizes | None = None,
) -> Outcome:
    """`arrivals` in order of time."""
    allowed = sizes or BatchSizes.powers_of_two(64)
    return run_in_fake_time(
        _play(arrivals, policy, costs or LinearCosts(), deadline_s, admission, max_queue_rows, allowed)
    )


async def _play(  # noqa: PLR0917 - `simulate` names them
    arrivals: Sequence[Arrival],
    policy: BatchingPolicy,
    costs: CallCosts,
    deadline_s: float,
    admission: bool,
    max_queue_rows: int,
    sizes: BatchSizes,
) -> Outcome:
    loop = asyncio.get_running_loop()
    device, calls = SimulatedDevice(), ExecutedCalls(policy)
    batcher = Batcher([device], policy, BatcherOptions(max_queue_rows, admission=admission), calls.heard, loop.time)
    lengths = {arrival.length for arrival in arrivals}
    functions = {length: function_of(length, costs, sizes, [device]) for length in lengths}
    begin_s = loop.time()
    callers = _Callers(arrivals, batcher, functions, deadline_s)
    await asyncio.sleep(arrivals[-1].at_s + 2 * deadline_s)
    await batcher.drain()
    took_s = np.array([reply.took_s for reply in callers.accepted])
    answered = np.array([reply.error is None for reply in callers.accepted], bool)
    in_time = int((took_s[answered] <= deadline_s).sum())
    return Outcome(
        arrived=len(arrivals),
        accepted=len(took_s),
        in_time=in_time,
        goodput=in_time / arrivals[-1].at_s,
        p99_s=float(np.quantile(took_s, 0.99)) if len(took_s) else 0.0,
        use=min(1.0, calls.busy_s / (loop.time() - begin_s)),
        mean_batch=calls.rows / max(1, calls.count),
        expired_executions=calls.expired,
    )


def function_of(
    length: float, costs: CallCosts, sizes: BatchSizes, devices: Sequence[SimulatedDevice]
) -> BatchFunction:
    """Of inputs of one length; its calls tell the devices what they cost: the one that makes them reads it at once."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        rows = len(inputs["x"])
        call_s, around_s = costs.took_s(rows, length), costs.around_s(rows)
        for device in devices:
            device.call_s, device.around_s = call_s, around_s
        return {"y": inputs["x"]}

    estimates = {rows: costs.call_s(rows, length) for rows in sizes.allowed}  # as warm-up measures them
    return BatchFunction(run, sizes, initial_estimates=estimates)


class ExecutedCalls:
    """What all calls of a run come to."""

    def __init__(self, policy: BatchingPolicy) -> None:
        self._policy = policy
        self.count = self.rows = self.expired = 0
        self.busy_s = 0.0

    def heard(self, event: Event) -> None:
        if not isinstance(event, BatchExecuted):
            return
        self.count += 1
        self.rows += event.rows
        self.expired += event.expired
        self.busy_s += event.compute_s
        if isinstance(self._policy, AdditiveIncrease):
            self._policy.called(event.rows, event.compute_s)


class _Callers:
    """Send each request at its time. `accepted` has the replies of those that were queued."""

    def __init__(
        self, arrivals: Sequence[Arrival], batcher: Batcher, functions: Mapping[float, BatchFunction], deadline_s: float
    ) -> None:
        self.accepted: list[TimedReply] = []
        self._arrivals = arrivals
        self._batcher = batcher
        self._functions = functions
        self._deadline_s = deadline_s
        self._inputs = {"x": np.zeros((1, 1), np.float32)}
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time()
        self._plan(0)

    def _plan(self, place: int) -> None:
        if place < len(self._arrivals):
            self._loop.call_at(self._begin_s + self._arrivals[place].at_s, self._send, place)

    def _send(self, place: int) -> None:
        self._plan(place + 1)
        length, reply = self._arrivals[place].length, TimedReply(self._loop)
        key, deadline_s = LaneKey("m", 1, f"{length:g}"), self._loop.time() + self._deadline_s
        try:
            self._batcher.submit(
                key, self._functions[length], PendingRequest(self._inputs, 1, reply, self._loop.time(), deadline_s)
            )
        except ServingError:
            return
        self.accepted.append(reply)
