"""The end of a batch: each of its requests gets its answer, at once or in order.

In-order completion: with several batches in flight a later one may end first. It is held until no request of an
earlier batch of its lane waits for an answer: each was answered, has expired or was cancelled. So no answer is held
longer than the deadlines of earlier requests allow. Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from app.batching.batch import BatchInFlight, Execution
from app.batching.drain import Drain
from app.batching.request import LaneKey
from app.core.errors import ServingError
from app.core.events import BatchExecuted, Listener
from app.core.inference import BatchTiming
from app.core.reply import Answer

logger = logging.getLogger(__name__)


class InOrderCompletion:
    """The started batches that are not answered, in the order of their start; false if there is none.

    Attributes:
        holds: whether a batch was computed and waits for an earlier one.
    """

    def __init__(self) -> None:
        self._started: dict[BatchInFlight, Execution | None] = {}
        self.holds = False

    def __len__(self) -> int:
        return len(self._started)

    def record_start(self, batch: BatchInFlight, part_of: BatchInFlight | None = None) -> None:
        """Notes a batch that started. A group of a rejected batch (`part_of`) gets the place of that."""
        self._started[batch] = None
        if part_of in self._started:
            names = list(self._started)[:-1]
            names.insert(names.index(part_of), batch)
            self._started = {each: self._started[each] for each in names}

    def forget(self, batch: BatchInFlight) -> None:
        """Forgets a batch that ended without answers: its requests are run again."""
        self._started.pop(batch, None)

    def record_end(self, batch: BatchInFlight, execution: Execution) -> None:
        self._started[batch] = execution

    def due(self) -> Iterable[tuple[BatchInFlight, Execution]]:
        """Removes and returns the batches that may be answered now, in order.

        A batch blocks the later ones of its lanes while one of its requests waits for an answer.
        """
        due = []
        blocked: set[LaneKey] = set()
        for batch, execution in self._started.items():
            if execution is not None and blocked.isdisjoint(batch.lanes):
                due.append((batch, execution))
            elif batch.awaited:
                blocked.update(batch.lanes)

        for batch, _ in due:
            del self._started[batch]
        self.holds = any(self._started.values())
        return due


class Completion:
    """The end of batches: computed ones are answered. Made on the event loop.

    Args:
        drain: may be over when a batch was answered, and when a request left before its batch ended.
        in_order: the batches of a lane are answered in the order in which they were started.

    Attributes:
        order: the started batches that are not answered, if `in_order`.
    """

    def __init__(self, listener: Listener, drain: Drain, *, in_order: bool) -> None:
        self._listener = listener
        self._drain = drain
        self._loop = asyncio.get_running_loop()
        self.order = InOrderCompletion() if in_order else None

    def forget(self, batch: BatchInFlight) -> None:
        """Forgets a batch without answers: its requests are answered in groups of their own."""
        if self.order is not None:
            self.order.forget(batch)
        self.on_cancel()

    def complete(self, batch: BatchInFlight, execution: Execution) -> None:
        """Answers the batch now, or as soon as the earlier ones of its lanes are answered."""
        if self.order is None:
            self._answer(batch, execution)
        else:
            self.order.record_end(batch, execution)
            self._answer_due()

    def on_cancel(self) -> None:
        """A request expired or was cancelled: if a later batch waited for it, its answers are given soon."""
        if self._drain.begun:
            self._drain.check()
        if self.order is not None and self.order.holds:
            self._loop.call_soon(self._answer_due)  # later: the answers of a batch may be being set right now

    def _answer_due(self) -> None:
        assert self.order is not None  # noqa: S101 - called only if order counts
        for batch, execution in self.order.due():
            self._answer(batch, execution)

    def _answer(self, batch: BatchInFlight, execution: Execution) -> None:
        """Never raises: other batches, and the end of a drain, come after it."""
        try:
            self._listener(answer(batch, execution))
        except Exception:
            logger.exception("The end of a batch failed, its other requests get an error: %r", batch)
            batch.fail("The answer could not be given to its caller")
        finally:
            if self._drain.begun:
                self._drain.check()


def answer(batch: BatchInFlight, execution: Execution) -> BatchExecuted:
    """Gives each waiting request its rows or its error, and releases all."""
    # 1. Each request is answered, and counted for the event.
    started_s, compute_s = execution.started_s, execution.ended_s - execution.started_s
    requests, rows = batch.requests, batch.rows
    waits, failed, failed_rows, expired = [], 0, 0, 0
    for request, outcome in zip(requests, execution.outcomes, strict=True):
        wait_s = started_s - request.arrival_s
        count = len(request.coalesced_s) or 1
        if request.deadline_s <= started_s:
            expired += count
        if isinstance(outcome, ServingError):
            failed += count
            failed_rows += request.rows
            request.fail(outcome)
        else:
            request.answer(Answer(outcome, BatchTiming(wait_s, compute_s, rows)))
        if request.coalesced_s:
            waits += [started_s - each for each in request.coalesced_s]
        else:
            waits.append(wait_s)
        request.release()

    # 2. The batch is over.
    batch.leave()
    return BatchExecuted(
        *batch.key[:3],
        rows,
        execution.padded_rows,
        batch.reason,
        compute_s,
        waits,
        failed,
        failed_rows,
        expired,
        execution.padding_ratio,
        execution.input_s,
        execution.output_s,
    )
