"""In which order batches are answered where order counts: those of a lane as they began. Pure.

With several batches under way a later one may end first. It is held until nobody in an earlier one of its lane waits
for an answer any more: that was answered, or its requests expired or were cancelled. So nobody is held for longer than
those before have time.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.batching.batch import Execution
from app.batching.lane import LaneKey
from app.batching.submission import StartedBatch


class DeliveryOrder:
    """The batches that have begun and are not answered; false where there are none."""

    def __init__(self) -> None:
        self._begun: dict[StartedBatch, Execution | None] = {}
        self.holds = False

    def __len__(self) -> int:
        return len(self._begun)

    def begun(self, batch: StartedBatch) -> None:
        """It comes after all that began before."""
        self._begun[batch] = None

    def ended(self, batch: StartedBatch, execution: Execution) -> None:
        """It was computed, and may be answered when its turn comes."""
        self._begun[batch] = execution

    def due(self) -> Iterable[tuple[StartedBatch, Execution]]:
        """Takes those out that may be answered now, in this order."""
        due = []
        blocked: set[LaneKey] = set()
        for batch, execution in self._begun.items():
            if execution is not None and blocked.isdisjoint(batch.lanes):
                due.append((batch, execution))
            elif not batch.answered:
                blocked.update(batch.lanes)
        for batch, _ in due:
            del self._begun[batch]
        self.holds = any(self._begun.values())
        return due
