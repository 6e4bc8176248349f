"""What a request costs while others wait: microseconds of one submit, of one batch taken, and of admission.

    python -m bench.queue_costs [--waiting 100,1000,10000,100000] [--rounds 2000]

One row for each number of waiting requests and each way in which they wait. The bound is 60 us for each figure, at 10^5
waiting rows in one lane and at 10^4 lanes. Only the queue, the scheduler and admission are timed: no event loop, no
model. tests/batching/waiting/test_costs.py holds the same law by counting steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from app.batching.admission import Admission
from app.batching.batch import BatchInFlight
from app.batching.devices import DeviceSlots
from app.batching.function import BatchFunction
from app.batching.isolation import Isolations
from app.batching.policy import SelfTuning
from app.batching.priority import BULK, priority_offset_s
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.waiting.callers import Callers
from app.core.batch_sizes import BatchSizes
from bench.simulator.simulation import SimulatedDevice

#: Lanes: how many share what waits; 0 for a lane for each request. Then the priority, and how many callers take turns.
_CASES = {
    "default": (1, 0, 0),
    "low priority": (1, 10, 0),
    "bulk": (1, BULK, 0),
    "a hundred lanes": (100, 0, 0),
    "lanes": (0, 0, 0),
    "lanes of a caller": (0, 0, 1),
    "lanes of a hundred callers": (0, 0, 100),
}

#: No more lanes than this: callers choose shapes, but none more.
_MAX_LANES = 10_000


class _Reply:
    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        """Nobody waits."""

    def set_exception(self, exception: Exception, /) -> None:
        """Nobody waits."""


class _Waiting:
    """A queue in which this many requests of a priority wait, in this many lanes."""

    def __init__(self, requests: int, lanes: int, priority: int, callers: int) -> None:
        shared = Callers() if callers else None
        self.callers = max(1, callers)
        self.scheduler = Scheduler(SelfTuning(), {}, shared)
        self.queue = RequestQueue(10**7, self.scheduler.most_rows, callers=shared)
        slots = DeviceSlots([SimulatedDevice()], time.monotonic)
        self.admission = Admission(self.queue, slots, self.scheduler, Isolations(self.queue), time.monotonic)
        sizes = BatchSizes.powers_of_two(64)
        self.function = BatchFunction(dict, sizes, initial_estimates={rows: 1e-9 * rows for rows in sizes.allowed})
        for number in range(requests):
            self.push(number % lanes, priority)

    def push(self, lane: int, priority: int = 0) -> PendingRequest:
        now = time.monotonic()
        offset_s = priority_offset_s(priority) if priority else 0.0
        caller = str(lane % 101 % self.callers)  # 101 is prime: a lane has one caller, a caller many lanes
        request = PendingRequest({}, 1, _Reply(), now, now + 3600.0, offset_s, caller)
        self.queue.push(LaneKey("m", 1, "f", (), ((lane,),)), self.function, request)
        return request


@dataclass(frozen=True, slots=True)
class Row:
    """Median microseconds of each."""

    waiting: int
    case: str
    submit: float
    take: float
    admission: float
    submit_p99: float


def measure(waiting: int, case: str, rounds: int) -> Row:
    lanes, priority, callers = _CASES[case]
    lanes = lanes or min(waiting, _MAX_LANES)
    scene = _Waiting(waiting, lanes, priority, callers)
    submit, submit_p99 = _timed(lambda number: scene.push(number % lanes), rounds)

    def take(_: int) -> None:
        plan, lane = scene.scheduler.first_due(scene.queue, time.monotonic())
        batch = BatchInFlight(lane, scene.queue.take(lane, plan.rows, plan.most_rows, time.monotonic()), plan.reason)
        scene.scheduler.record_start(batch)
        scene.scheduler.record_end(batch, batch.expected_s)

    def submit_and_check(number: int) -> None:
        request = scene.push(number % lanes)
        scene.admission.check_deadline(request, request.arrival_s)

    admission, _ = _timed(submit_and_check, rounds)
    taken, _ = _timed(take, min(rounds, scene.queue.rows // 64))
    return Row(waiting, case, submit, taken, admission - submit, submit_p99)


def _timed(act: Callable[[int], object], rounds: int) -> tuple[float, float]:
    """The median and the 99th percentile of this many, in microseconds."""
    took = []
    for number in range(max(1, rounds)):
        begin_s = time.perf_counter()
        act(number)
        took.append(1e6 * (time.perf_counter() - begin_s))
    return median(took), sorted(took)[99 * len(took) // 100]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--waiting", default="100,1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args(arguments)
    print("| waiting | as | submit us | take us | admission us | submit p99 us |\n|--:|---|--:|--:|--:|--:|")
    for waiting in map(int, options.waiting.split(",")):
        for case in _CASES:
            row = measure(waiting, case, options.rounds)
            print(
                f"| {row.waiting} | {row.case} | {row.submit:.1f} | {row.take:.1f} | {row.admission:.1f} | "
                f"{row.submit_p99:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
