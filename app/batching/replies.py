"""The end of a batch: everyone in it gets a reply, and what happened is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.batching.batch import Answer, Execution
from app.batching.delivery import DeliveryOrder
from app.batching.submission import StartedBatch
from app.errors import ServingError
from app.events import BatchExecuted, Listener
from app.inference import BatchTiming


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

    def begun(self, batch: StartedBatch) -> None:
        if self.order is not None:
            self.order.begun(batch)

    def ended(self, batch: StartedBatch, execution: Execution) -> None:
        if self.order is None:
            self._answer(batch, execution)
        else:
            self.order.ended(batch, execution)
            self._answer_due()

    def somebody_left(self) -> None:
        """A request was answered or withdrawn before its batch ended: others may have waited for that."""
        self._told()
        if self.order is not None and self.order.holds:
            self._loop.call_soon(self._answer_due)  # not at once: a batch may be being answered

    def _answer_due(self) -> None:
        assert self.order is not None  # noqa: S101 - called only where order counts
        for batch, execution in self.order.due():
            self._answer(batch, execution)

    def _answer(self, batch: StartedBatch, execution: Execution) -> None:
        event = answer(batch, execution)
        self._told()
        self._listener(event)


def answer(batch: StartedBatch, execution: Execution) -> BatchExecuted:
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
