"""The executor: it has batches executed, on the event loop or by a device, and learns from their calls.

Rules
- A call that is known to take less than `max_inline_s` may be made on the event loop: handing it to a thread and back
  costs the loop more (docs/architecture/batching-core.md, "Short calls").
- A device thread reads the batch that it executes, its function and that function's padding; it writes none of them
  (test_batch.py). The consequences of a call are drawn on the event loop.
- A batch that failed because of some of its requests is not answered: its requests are isolated (isolation.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from app.batching.batch import BatchInFlight, Execution, PaddingMismatch, RowCountMismatch, execute
from app.batching.deadlines import Expiry
from app.batching.dispatch.completion import Completion
from app.batching.dispatch.shadow_check import ShadowChecks
from app.batching.dispatch.traffic_proof import TrafficProofs
from app.batching.function import Compared
from app.batching.state import BatchingState
from app.core.errors import InvalidRequest
from app.core.events import BatchRejected, CallRepeated, Event, ShadowChecked

logger = logging.getLogger(__name__)


class Executor:
    """The part that has batches executed, and learns from their calls. Lives on the event loop.

    Attributes:
        max_inline_s: calls that are known to take less are made on the event loop; 0 for none.
        inline_ended_s: the time when the last of these calls ended.
    """

    def __init__(
        self,
        state: BatchingState,
        completion: Completion,
        expiry: Expiry,
        shadow: ShadowChecks,
        traffic: TrafficProofs,
    ) -> None:
        self._state = state
        self._queue, self._slots, self._scheduler = state.queue, state.slots, state.scheduler
        self._isolations, self._drain, self._admission = state.isolations, state.drain, state.admission
        self._clock = state.clock
        self._completion = completion
        self._expiry = expiry
        self._shadow = shadow
        self._traffic = traffic

        self.max_inline_s = state.options.max_inline_s
        self.inline_ended_s = -inf
        self._freed_s = -inf  # when a device became free that was not

    # --- on the event loop ---

    @property
    def takes_at_once(self) -> bool:
        """Whether a new request would find a free device and an empty queue: it may be computed now, here."""
        scheduler, slots = self._scheduler, self._slots
        free = scheduler.eager and not self._queue.rows and bool(slots.free) and not slots.reserved
        return free and not self._drain.begun and not self._completion.order

    def compute(self, batch: BatchInFlight) -> None:
        """Executes a batch here, and answers it unless its requests have to be run again."""
        self._prepare(batch, self.inline_ended_s)
        execution = execute(batch.function, batch.requests, self._clock)
        self.inline_ended_s = execution.ended_s
        self._slots.count_inline(batch.key.model, execution.ended_s - execution.started_s)
        self._record_start(batch)  # after the call, because nothing else runs during it
        self.complete(batch, execution, self._record_end(batch, execution))

    def compute_unqueued(self, batch: BatchInFlight, now: float) -> None:
        """`compute` for a batch whose request was in no lane."""
        batch.function.requests_under_way += 1
        batch.costs.record_dispatch(batch.rows, now)
        self.compute(batch)

    # --- by a device ---

    def start(self, batch: BatchInFlight, now: float, ended: Callable[[BatchInFlight, Execution], None]) -> None:
        """Gives a batch to a free device.

        Args:
            ended: called on the event loop when the device is free again; it calls `record_end` and `complete`.

        Raises: what DeviceSlots.start raises. The batch is answered with an error then.
        """
        self._prepare(batch, self._freed_s)
        expected_s = batch.expected_s
        if self._admission is not None:
            self._admission.expect(expected_s)
        self._slots.start(batch, now, expected_s, ended)
        self._record_start(batch)  # only now: a device that takes no work raises

    def record_end(self, batch: BatchInFlight, execution: Execution) -> BatchInFlight | None:
        """Learns from a batch of a device. Returns the batch whose isolation is over with it, for `complete`."""
        self._freed_s = execution.ended_s
        return self._record_end(batch, execution)

    def complete(self, batch: BatchInFlight, execution: Execution, isolated: BatchInFlight | None) -> None:
        """Answers a batch, unless its requests are run again; with it the isolation of `isolated` is over."""
        if execution.refusal is not None:
            self._tell(batch, *[CallRepeated(*batch.key[:3], *call) for call in execution.refusal.calls])
        if execution.rejection is None:
            if len(batch.requests) == 1 and isinstance(execution.outcomes[0], InvalidRequest):
                self._state.suspects.note(batch.requests[0].caller, execution.ended_s)
            self._completion.complete(batch, execution)
        else:
            seconds = execution.ended_s - execution.started_s
            self._tell(batch, BatchRejected(*batch.key[:3], len(batch.requests), batch.rows, seconds))
            if batch.is_group:
                self._completion.forget(batch)
        if isolated is not None:
            self._completion.forget(isolated)

    # --- both ---

    def _prepare(self, batch: BatchInFlight, free_s: float) -> None:
        """Notes since when the machine was free for the batch: `free_s`, or the entry of its first request."""
        if not batch.function.batchable:
            self._take_apart(batch)
        batch.since_s = max(free_s, batch.requests[0].entered_s)

    def _take_apart(self, batch: BatchInFlight) -> None:
        """Replaces coalesced requests by their own, and parts by their whole unless parts can be answered alone."""
        for request in batch.take_apart():
            self._expiry.watch(request)
        if not batch.function.divisible:
            batch.make_whole(self._queue.remove)

    def _record_start(self, batch: BatchInFlight) -> None:
        self._scheduler.record_start(batch)
        if self._completion.order is not None:
            self._completion.order.record_start(batch, self._isolations.part_of(batch))

    def _record_end(self, batch: BatchInFlight, execution: Execution) -> BatchInFlight | None:
        self._learn(batch, execution)
        if execution.rejection is not None:
            self._take_apart(batch)
        elif not self._isolations.open:
            return None
        return self._isolations.record_end(batch, execution, self._clock())

    def _learn(self, batch: BatchInFlight, execution: Execution) -> None:
        """Learns from a call. Never raises: a fault of this must not keep its requests from being answered."""
        try:
            if isinstance(execution.rejection, RowCountMismatch):
                rows_follow = isinstance(execution.rejection, PaddingMismatch)
                batch.function.stop_batching(str(execution.rejection), rows_follow=rows_follow)
            if execution.compared is not None:
                self._learn_rows(batch, execution, execution.compared)
            refusal, function = execution.refusal, batch.function
            most_rows = 0 if refusal is None else function.row_limit.record(refusal.rows, refusal.found)
            if most_rows and function.on_limit is not None:
                function.on_limit(most_rows)
            seconds = execution.ended_s - execution.started_s
            batch.record_latency(seconds, self.max_inline_s, execution.ended_s, succeeded=execution.succeeded)
            if self._admission is not None:
                self._admission.record(seconds, batch.requests[0], execution.ended_s)
            self._scheduler.record_end(batch, seconds)
            self._slots.called_s += seconds
            if batch.function.plain is not None and not self._drain.begun:
                self._shadow.observe(batch, execution)
            if batch.function.trial is not None and not self._drain.begun:
                self._traffic.observe(batch, execution)
        except Exception:
            logger.exception("The costs of a call could not be recorded: %r", batch)

    def _learn_rows(self, batch: BatchInFlight, execution: Execution, compared: Compared) -> None:
        """Counts answers that were compared in advance; stops the variant, padding or sharing that changed one."""
        function = batch.function
        if function.first is None:
            return
        function.first.record(compared)
        guilty = compared.differing
        if not guilty or function.plain is None:
            return
        if batch.is_group and guilty in function.guilty:  # answers differ without it, too
            function.stop_batching(str(execution.rejection))
        else:
            function.guilty.add(guilty)
            function.plain.stop(guilty)
        self._state.listener(ShadowChecked(*batch.key[:3], guilty, execution.ended_s - execution.started_s))

    def _tell(self, batch: BatchInFlight, *events: Event) -> None:
        """Tells the listener of a batch. Never raises: its requests are answered, or run again, all the same."""
        try:
            for event in events:
                self._state.listener(event)
        except Exception:
            logger.exception("Rejected or repeated calls could not be counted: %r", batch)
