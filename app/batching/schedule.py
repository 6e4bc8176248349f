"""Whose turn it is, and how its batch is formed: the policies of all models, over all lanes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.batching.lane import Lane
from app.batching.policy import BatchingPolicy, BatchPlan
from app.batching.shares import Shares
from app.batching.submission import StartedBatch


class Schedule:
    """By one policy, but where a model has one of its own; models that have weights share the devices by them.

    Attributes:
        eager: does an idle device take at once whatever comes, of any model?
        shares: false where models have no weights.
    """

    def __init__(self, policy: BatchingPolicy, weights: Mapping[str, float]) -> None:
        self._policy = policy
        self._policies: dict[str, BatchingPolicy] = {}
        self.shares = Shares(weights)
        self.eager = policy.eager

    def tune(self, model: str, policy: BatchingPolicy, weight: float) -> None:
        """The policy and the weight (0 for none) of all versions of a model."""
        self._policies[model] = policy
        self.shares.set_weight(model, weight)
        self.eager = self._policy.eager and all(each.eager for each in self._policies.values())

    def most_rows(self, lane: Lane) -> int:
        """The rows of a full batch."""
        return self._of(lane).most_rows(lane)

    def first_due(self, lanes: Collection[Lane], now: float, idle_since_s: float) -> tuple[BatchPlan, Lane]:
        """Of the lanes that are due the most urgent one, of the model whose turn it is where models have weights;
        else the next one due. Of equal ones the oldest."""
        shares = self.shares
        if not shares or len(lanes) == 1:
            lane = min(lanes, key=_urgency)
            plan = self._of(lane).plan(lane, idle_since_s)
            if plan.due_s <= now or len(lanes) == 1:  # as a rule, so of many lanes one is planned
                return plan, lane

        def place(planned: tuple[BatchPlan, Lane]) -> tuple[bool, float, float, float]:
            (due_s, *_), lane = planned
            if due_s > now:
                return True, 0.0, due_s, lane.oldest_arrival_s
            return False, shares.start(lane.key.model) if shares else 0.0, lane.urgency_s, lane.oldest_arrival_s

        return min(((self._of(lane).plan(lane, idle_since_s), lane) for lane in lanes), key=place)

    def begun(self, batch: StartedBatch) -> None:
        """A batch is being computed."""
        if self.shares:
            self.shares.begun(batch)

    def ended(self, batch: StartedBatch, seconds: float) -> None:
        """Its computing took so long."""
        self.shares.ended(batch, seconds)

    def _of(self, lane: Lane) -> BatchingPolicy:
        return self._policies.get(lane.key.model, self._policy)


def _urgency(lane: Lane) -> tuple[float, float]:
    return lane.urgency_s, lane.oldest_arrival_s
