"""In which order batches are answered where order counts: those of a lane as they began. Pure.

With several batches under way a later one may end first. It is held until nobody in an earlier one of its lane waits
for an answer any more: that was answered, or its requests expired or were cancelled. So nobody is held for longer than
those before have time.


The end of a batch: everyone in it gets a reply, and what happened is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from app.batching.batch import BatchInFlight, Execution
from app.batching.request import LaneKey
from app.core.errors import ServingError
from app.core.events import BatchExecuted, Listener
from app.core.inference import BatchTiming
from app.core.reply import Answer


class DeliveryOrder:
    """The batches that have begun and are not answered; false where there are none."""

    def __init__(self) -> None:
        self._begun: dict[BatchInFlight, Execution | None] = {}
        self.holds = False

    def __len__(self) -> int:
        return len(self._begun)

    def begun(self, batch: BatchInFlight) -> None:
        """It comes after all that began before."""
        self._begun[batch] = None

    def ended(self, batch: BatchInFlight, execution: Execution) -> None:
        """It was computed, and may be answered when its turn comes."""
        self._begun[batch] = execution

    def due(self) -> Iterable[tuple[BatchInFlight, Execution]]:
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


class Replies:
    """Answers batches that were computed: at once, or in order. Made on the event loop.

    Args:
        in_order: those of a lane in the order in which they began.
        told: called after a batch was answered, and when somebody left.

    Attributes:
        order: what has begun and is not answered, where order counts.
    """

    def __init__(self, listener: Listener, told: Callable[[], None], *, in_order: bool) -> None:
        self._listener = listener
        self._told = told
        self._loop = asyncio.get_running_loop()
        self.order = DeliveryOrder() if in_order else None

    def begun(self, batch: BatchInFlight) -> None:
        if self.order is not None:
            self.order.begun(batch)

    def ended(self, batch: BatchInFlight, execution: Execution) -> None:
        if self.order is None:
            self._answer(batch, execution)
        else:
            self.order.ended(batch, execution)
            self._answer_due()

    def somebody_left(self) -> None:
        """A request was answered or cancelled before its batch ended: others may have waited for that."""
        self._told()
        if self.order is not None and self.order.holds:
            self._loop.call_soon(self._answer_due)  # not at once: a batch may be being answered

    def _answer_due(self) -> None:
        assert self.order is not None  # noqa: S101 - called only where order counts
        for batch, execution in self.order.due():
            self._answer(batch, execution)

    def _answer(self, batch: BatchInFlight, execution: Execution) -> None:
        event = answer(batch, execution)
        self._told()
        self._listener(event)


def answer(batch: BatchInFlight, execution: Execution) -> BatchExecuted:
    """Gives each request that still waits for one its rows or its error, and lets go of all."""
    compute_s = execution.ended_s - execution.started_s
    requests, rows = batch.requests, batch.rows
    waits = [execution.started_s - request.arrival_s for request in requests]
    failed_rows = []
    for request, outcome, wait_s in zip(requests, execution.outcomes, waits, strict=True):
        if isinstance(outcome, ServingError):
            failed_rows.append(request.rows)
            request.fail(outcome)
        elif not request.reply.done():
            request.reply.set_result(Answer(outcome, BatchTiming(wait_s, compute_s, rows)))
        request.forget()
    batch.left()
    if not failed_rows:
        batch.took(compute_s)
    return BatchExecuted(
        *batch.key[:3],
        rows,
        execution.padded_rows,
        batch.reason,
        compute_s,
        waits,
        len(failed_rows),
        sum(failed_rows),
        sum([request.deadline_s <= execution.started_s for request in requests]),
        execution.waste,
    )
