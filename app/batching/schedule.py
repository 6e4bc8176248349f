"""Whose turn it is, and how its batch is formed: the policies of all models, over all lanes. Pure."""

from __future__ import annotations

from collections.abc import Collection

from app.batching.lane import Lane
from app.batching.policy import BatchingPolicy, BatchPlan


class Schedule:
    """By one policy, but where a model has one of its own.

    Attributes:
        eager: does an idle device take at once whatever comes, of any model?
    """

    def __init__(self, policy: BatchingPolicy) -> None:
        self._policy = policy
        self._policies: dict[str, BatchingPolicy] = {}
        self.eager = policy.eager

    def tune(self, model: str, policy: BatchingPolicy) -> None:
        """The policy of all versions of a model."""
        self._policies[model] = policy
        self.eager = self._policy.eager and all(each.eager for each in self._policies.values())

    def most_rows(self, lane: Lane) -> int:
        """The rows of a full batch."""
        return self._of(lane).most_rows(lane)

    def first_due(self, lanes: Collection[Lane], now: float, idle_since_s: float) -> tuple[BatchPlan, Lane]:
        """Of the lanes that are due the most urgent one; else the next one due. Of equal ones the oldest."""
        if len(lanes) == 1:
            lane = next(iter(lanes))
            return self._of(lane).plan(lane, idle_since_s), lane

        def place(planned: tuple[BatchPlan, Lane]) -> tuple[bool, float, float]:
            (due_s, *_), lane = planned
            if due_s > now:
                return True, due_s, lane.oldest_arrival_s
            return False, lane.urgency_s, lane.oldest_arrival_s

        return min(((self._of(lane).plan(lane, idle_since_s), lane) for lane in lanes), key=place)

    def _of(self, lane: Lane) -> BatchingPolicy:
        return self._policies.get(lane.key.model, self._policy)
