"""Which model's turn it is where models share the devices by weight: start-time fair queueing. Pure.

Each model has a virtual time, which a call moves on by its seconds over the model's weight: when it begins by those
that it will foreseeably take, when it ends by those that it took. The model that is least far goes next, so over any
time in which two have work their seconds are as their weights, but for a call of each and device. Who had no work
begins where the others are: nobody saves up, and an idle model's share goes to the others.

P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing, SIGCOMM 1996.


Whose turn it is, and how its batch is formed: the policies of all models, over all lanes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from app.batching.batch import BatchInFlight
from app.batching.policy import BatchingPolicy, BatchPlan
from app.batching.queue import Lane


class FairQueueing:
    """False where no model has a weight; then they do not share by it. Who has none beside one that has counts 1."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {model: weight for model, weight in weights.items() if weight}
        self._ends: dict[str, float] = {}
        self._now = 0.0
        self._expected_s: dict[BatchInFlight, float] = {}

    def __bool__(self) -> bool:
        return bool(self._weights)

    def set_weight(self, model: str, weight: float) -> None:
        """From the next call on; 0 takes it away."""
        self._weights.pop(model, None)
        if weight:
            self._weights[model] = weight

    def share(self, model: str, models: Iterable[str]) -> float:
        """Which part of the devices' time a model gets while just these have work."""
        return self._weight(model) / sum(map(self._weight, models))

    def start(self, model: str) -> float:
        """At which virtual time its next call would begin."""
        return max(self._now, self._ends.get(model, 0.0))

    def begun(self, batch: BatchInFlight) -> None:
        """A batch is being computed."""
        model = batch.key.model
        self._now = self.start(model)
        expected_s = self._expected_s[batch] = batch.expected_s
        self._ends[model] = self._now + self._virtual(model, expected_s)

    def ended(self, batch: BatchInFlight, seconds: float) -> None:
        """It took so long. One that began before there were weights counts for nothing."""
        expected_s = self._expected_s.pop(batch, None)
        if expected_s is not None:
            self._ends[batch.key.model] += self._virtual(batch.key.model, seconds - expected_s)

    def _virtual(self, model: str, seconds: float) -> float:
        return seconds / self._weight(model)

    def _weight(self, model: str) -> float:
        return self._weights.get(model, 1.0)


class Schedule:
    """By one policy, but where a model has one of its own; models that have weights share the devices by them.

    Attributes:
        eager: does an idle device take at once whatever comes, of any model?
        shares: false where models have no weights.
    """

    def __init__(self, policy: BatchingPolicy, weights: Mapping[str, float]) -> None:
        self._policy = policy
        self._policies: dict[str, BatchingPolicy] = {}
        self.shares = FairQueueing(weights)
        self.eager = policy.eager

    def tune(self, model: str, policy: BatchingPolicy, weight: float) -> None:
        """The policy and the weight (0 for none) of all versions of a model."""
        self._policies[model] = policy
        self.shares.set_weight(model, weight)
        self.eager = self._policy.eager and all(each.eager for each in self._policies.values())

    def most_rows(self, lane: Lane) -> int:
        """The rows of a full batch."""
        return self._of(lane).most_rows(lane)

    def first_due(self, lanes: Collection[Lane], now: float) -> tuple[BatchPlan, Lane]:
        """Of the lanes that are due the most urgent one, of the model whose turn it is where models have weights;
        else the next one due. Of equal ones the oldest."""
        shares = self.shares
        if not shares or len(lanes) == 1:
            lane = min(lanes, key=_urgency)
            plan = self._of(lane).plan(lane)
            if plan.due_s <= now or len(lanes) == 1:  # as a rule, so of many lanes one is planned
                return plan, lane

        def place(planned: tuple[BatchPlan, Lane]) -> tuple[bool, float, float, float]:
            (due_s, *_), lane = planned
            if due_s > now:
                return True, 0.0, due_s, lane.oldest_arrival_s
            return False, shares.start(lane.key.model) if shares else 0.0, lane.scheduling_key_s, lane.oldest_arrival_s

        return min(((self._of(lane).plan(lane), lane) for lane in lanes), key=place)

    def begun(self, batch: BatchInFlight) -> None:
        """A batch is being computed."""
        if self.shares:
            self.shares.begun(batch)

    def ended(self, batch: BatchInFlight, seconds: float) -> None:
        """Its computing took so long."""
        self.shares.ended(batch, seconds)

    def _of(self, lane: Lane) -> BatchingPolicy:
        return self._policies.get(lane.key.model, self._policy)


def _urgency(lane: Lane) -> tuple[float, float]:
    return lane.scheduling_key_s, lane.oldest_arrival_s
