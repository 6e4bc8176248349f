"""The scheduler: it chooses the lane of the next batch, and plans the batch. No I/O, no clock.

Models with weights share the devices by start-time fair queueing. Each model has a virtual time, which a call advances
by its seconds over the model's weight: at its start by the expected seconds, at its end by the difference to the real
ones. The model with the least virtual time is next, so over any time in which two models have work they get seconds in
proportion to their weights, up to one call of each and device. A model without work starts again at the virtual time of
the other models: unused time is not saved up, but goes to these.

Callers share the devices in the same way, each with one virtual time for all lanes and models (waiting/callers.py).
With weights the model is chosen first, then the caller.

P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing, SIGCOMM 1996.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple

from app.batching.batch import BatchInFlight
from app.batching.costs.cost_model import Costs
from app.batching.policy import BatchingPolicy, BatchPlan
from app.batching.queue import RequestQueue
from app.batching.waiting.callers import Callers, Charge
from app.batching.waiting.lane import Lane
from app.batching.waiting.lane_order import Entry


class FairQueueing:
    """The virtual times of all models.

    Attributes:
        weights: by model; beside weights a model without one counts as 1. Empty if no model has a weight.
        charged: the batches in flight that were charged, each with its expected seconds.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = {model: weight for model, weight in weights.items() if weight}
        self.charged: dict[BatchInFlight, float] = {}
        self._ends: dict[str, float] = {}
        self._now = 0.0

    def set_weight(self, model: str, weight: float) -> None:
        """Sets the weight from the next call on; 0 removes it."""
        self.weights.pop(model, None)
        if weight:
            self.weights[model] = weight

    def share(self, model: str, models: Iterable[str]) -> float:
        """The share of the devices' time that a model gets while exactly `models` have work."""
        return self._weight(model) / sum(map(self._weight, models))

    def start_time(self, model: str) -> float:
        """The virtual time at which the model's next call would start."""
        return max(self._now, self._ends.get(model, 0.0))

    def record_start(self, batch: BatchInFlight) -> None:
        """Charges a batch by its expected seconds."""
        model = batch.key.model
        self._now = self.start_time(model)
        expected_s = self.charged[batch] = batch.expected_s
        self._ends[model] = self._now + expected_s / self._weight(model)

    def record_end(self, batch: BatchInFlight, seconds: float) -> None:
        """Corrects the charge of a batch."""
        expected_s = self.charged.pop(batch)
        self._ends[batch.key.model] += (seconds - expected_s) / self._weight(batch.key.model)

    def record_call(self, model: str, seconds: float) -> None:
        """Charges a call that has ended, and was not charged at its start."""
        self._now = self.start_time(model)
        self._ends[model] = self._now + seconds / self._weight(model)

    def _weight(self, model: str) -> float:
        return self.weights.get(model, 1.0)


def _ignore(what: str, error: Exception) -> None: ...


class _EmptyLane(NamedTuple):
    """A lane in which no request waits yet, as policies see it."""

    costs: Costs
    max_rows: int
    rows: int = 0
    waiting_since_s: float = 0.0
    timeout_s: float = inf


class Scheduler:
    """The scheduler of a batcher: it plans batches by one policy, or by that of a model.

    Args:
        callers: the callers, which have fair shares of the devices; None if callers are not told apart.
        failed: called once for each model whose policy raised, which is a bug; its lanes get plain batches then.

    Attributes:
        eager: true if an idle device takes every request of any model at once.
        fair_queueing: the shares of models that have weights.
    """

    def __init__(
        self,
        policy: BatchingPolicy,
        weights: Mapping[str, float],
        callers: Callers | None = None,
        failed: Callable[[str, Exception], None] = _ignore,
    ) -> None:
        self._policy = policy
        self._failed = failed
        self._failing: set[str] = set()  # the models whose policy raised
        self._callers = callers
        self._charges: dict[BatchInFlight, Charge] = {}  # to the callers of batches in flight
        self._policies: dict[str, BatchingPolicy] = {}
        self.fair_queueing = FairQueueing(weights)
        self.eager = policy.eager

    def tune(self, model: str, policy: BatchingPolicy, weight: float) -> None:
        """Sets policy and weight (0 for none) of all versions of a model."""
        self._policies[model] = policy
        self.fair_queueing.set_weight(model, weight)
        self.eager = self._policy.eager and all(each.eager for each in self._policies.values())

    def most_rows(self, lane: Lane) -> int:
        return self._policies.get(lane.key.model, self._policy).most_rows(lane)

    def next_full_batch(self, model: str, costs: Costs, max_rows: int) -> int:
        """The rows of the next full batch of a lane with these costs, in which no request waits yet.

        It may be larger to try that size.
        """
        policy, lane = self._policies.get(model, self._policy), _EmptyLane(costs, max_rows)
        return policy.plan(lane).most_rows if costs.explores else policy.most_rows(lane)

    def first_due(self, queue: RequestQueue, now: float, passed_over: Collection[str] = ()) -> tuple[BatchPlan, Lane]:
        """The lane to take the next batch from, and its plan; if no lane is due, the lane that is due next.

        Args:
            passed_over: models that are left out; another one must wait.
        """
        if (only := queue.only_lane) is not None and not passed_over:  # there is nothing to choose
            return self.plan(only), only
        orders = [order for model, order in queue.orders.items() if model not in passed_over]
        for order in orders:
            order.wake(now)

        # 1. The first lane that may be due: by virtual time of the model if models have weights, then of the caller if
        #    callers are told apart, by scheduling key, by age. It is nearly always due, so only one lane is planned; a
        #    lane that is not due sleeps.
        while entries := [entry for order in orders if (entry := order.first_awake())]:
            *_, placed = min(entries, key=self._order_of)
            lane = placed.lane
            plan = self.plan(lane)
            if plan.due_s <= now:
                return plan, lane
            queue.orders[lane.key.model].sleep(placed, plan.due_s)

        # 2. No lane is due: the lane that is due next. Requests that left may have made it due later than was noted.
        while True:
            due_s, *_, placed = min([entry for order in orders if (entry := order.next_asleep())])
            lane = placed.lane
            plan = self.plan(lane)
            if plan.due_s <= due_s:
                return plan, lane
            queue.orders[lane.key.model].sleep(placed, plan.due_s)

    def plan(self, lane: Lane) -> BatchPlan:
        try:
            return self._policies.get(lane.key.model, self._policy).plan(lane)
        except Exception as error:
            if lane.key.model not in self._failing:
                self._failing.add(lane.key.model)
                self._failed(f"A batch of {lane.key} could not be planned", error)
            return BatchPlan(lane.waiting_since_s, lane.max_rows, "idle", lane.max_rows)

    def _order_of(self, entry: Entry[Any]) -> tuple[float, float, float, float, int]:
        key_s, since_s, serial, _, placed = entry
        model_start = self.fair_queueing.start_time(placed.lane.key.model) if self.fair_queueing.weights else 0.0
        return model_start, placed.start, key_s, since_s, serial

    def record_start(self, batch: BatchInFlight) -> None:
        if self.fair_queueing.weights:
            self.fair_queueing.record_start(batch)
        if self._callers is not None:
            rows = Counter[str]()
            for request in batch.requests:
                rows[request.caller] += request.counted_rows
            self._charges[batch] = self._callers.begin(rows, batch.expected_s)

    def record_end(self, batch: BatchInFlight, seconds: float) -> None:
        if batch in self.fair_queueing.charged:  # else it started before there were weights
            self.fair_queueing.record_end(batch, seconds)
        if self._callers is not None:
            self._callers.end(self._charges.pop(batch), seconds)

    def record_call(self, model: str, caller: str, rows: int, seconds: float) -> None:
        """Charges a call that was no batch and has ended; see `record_start`."""
        if self.fair_queueing.weights:
            self.fair_queueing.record_call(model, seconds)
        if self._callers is not None:
            self._callers.end(self._callers.begin({caller: rows}, seconds), seconds)
