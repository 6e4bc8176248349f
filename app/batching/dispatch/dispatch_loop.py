"""The dispatch loop: starts the batches that are due whenever a device is free.

Rules
- A batch is formed only when a device is free. So batches fill while devices are busy, and requests that were cancelled
  or have expired by then are not in them (tests/laws/test_batching.py).
- After a request was queued, the loop runs in the next turn of the event loop, so requests that are read in one turn
  can share a batch. When a device becomes free it runs at once. Requests that were read may begin over several turns (a
  burst). A short call then waits for the last of them, at most `burst.LONGEST_S`: during the call hardly any of them
  could begin and share the next call.
- A batch that failed because of some of its requests is run again in smaller groups, each a batch of its own. Groups
  alternate with other due batches (isolation.py).
- Supplies are asked before a batch is planned (waiting/supplies.py): they bring the work that stands ready outside the
  queue.
"""

from __future__ import annotations

import asyncio

from app.batching.batch import BatchInFlight, Execution
from app.batching.deadlines import Expiry
from app.batching.dispatch.completion import Completion
from app.batching.dispatch.executor import Executor
from app.batching.dispatch.merging import merge_buckets
from app.batching.isolation import Isolation
from app.batching.policy import BatchPlan
from app.batching.state import BatchingState
from app.batching.waiting.lane import Lane
from app.core.burst import Burst
from app.core.errors import InferenceFailed

#: A shorter call waits for the rest of a burst: it would end before enough for the next one has begun. Chosen.
_SHORT_CALL_S = 0.002


class DispatchLoop:
    """The loop that starts due batches. Made on the event loop, where all of it runs.

    Args:
        burst: the requests that have arrived and are about to be submitted; short calls wait for its end.
    """

    def __init__(
        self,
        state: BatchingState,
        executor: Executor,
        completion: Completion,
        expiry: Expiry,
        burst: Burst,
    ) -> None:
        self._queue, self._slots, self._scheduler = state.queue, state.slots, state.scheduler
        self._isolations, self._supplies, self._drain = state.isolations, state.supplies, state.drain
        self._clock, self._note_failure, self._has_waiting = state.clock, state.note_failure, state.has_waiting
        self._executor = executor
        self._completion = completion
        self._expiry = expiry
        self._burst = burst

        self._loop = asyncio.get_running_loop()
        self._due = False  # whether it runs in the next turn
        self._timer: asyncio.TimerHandle | None = None
        burst.on_end(self.run)  # now: in the next turn there may be another burst
        self._slots.on_return = self._device_returned

    # --- when it runs ---

    def soon(self) -> None:
        """Runs in the next turn of the event loop, if a device is free: a batch may be due."""
        if self._slots.free and not self._due:
            self._due = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Starts the due batches. Never raises."""
        self._due = False
        try:
            self._start_due_batches()
        except Exception as error:
            self._note_failure("The batcher could not start a batch", error)
            self._drain.check()

    def _device_returned(self) -> None:
        """Called when a device that was lent for other work is free again."""
        self.soon()
        self._drain.check()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def expects_more(self) -> bool:
        """Whether there are groups to run again, or a burst is about to bring requests."""
        return bool(self._isolations.open) or self._burst.is_open

    def is_stranded(self, now: float, after_s: float) -> bool:
        """Whether a batch has been due for more than `after_s` although a device is free, which is a bug."""
        if not self._slots.free or self._slots.awaited:
            return False
        if self._queue.rows and now - self._scheduler.first_due(self._queue, now)[0].due_s > after_s:
            return True
        return bool(self._isolations.waiting) and now - self._isolations.waiting_since_s > after_s

    # --- due batches ---

    def _start_due_batches(self) -> None:
        self._slots.awaited.clear()
        while self._slots.free and (self._queue.rows or self._isolations.waiting or self._supplies.waiting):
            # 1. Expired requests leave first, also if the timer is late: they are never computed. Supplies put their
            #    work into the queue, or it was executed here; see 5.
            now = self._clock()
            if self._expiry.at_s <= now:
                self._expiry.expire()
                continue
            asked = bool(self._supplies.waiting)
            if asked and self._supplies.ask(self._has_waiting):
                self.soon()
                return
            now = self._clock() if asked else now  # the new requests have arrived by then

            # 2. A group of a rejected batch, if it is next.
            planned = self._first_due(now)
            due = planned is not None and (planned[0].due_s <= now or self._drain.begun)
            others = planned if due else None
            if self._isolations.open and (inline := self._start_group_if_next(others, now)) is not None:
                if inline:
                    self.soon()
                    return
                continue

            # 3. No batch is due: come back when one is. A batch that waits for devices is looked at when one is free.
            if planned is None or not due:
                self._run_when_due(planned, now)
                return
            plan, lane = planned

            # 4. A short call waits for the requests that arrived together with its own.
            if self._burst.is_open and self._waits_for_burst(lane, plan):
                return

            # 5. After a batch on the event loop sockets are read first: their requests share the next batch.
            if self._start_batch(lane, plan if plan.due_s <= now else plan._replace(reason="drain"), now):
                self.soon()
                return

    def _first_due(self, now: float) -> tuple[BatchPlan, Lane] | None:
        """The first due batch. If it needs devices that are not free, they wait for it, and the next one is planned."""
        passed_over: set[str] = set()
        while self._queue.orders.keys() - passed_over if passed_over else self._queue.rows:
            plan, lane = self._scheduler.first_due(self._queue, now, passed_over)
            due = plan.due_s <= now or self._drain.begun
            if not due or self._slots.claim(lane.function):
                return plan, lane
            passed_over.add(lane.key.model)
        return None

    def _run_when_due(self, planned: tuple[BatchPlan, Lane] | None, now: float) -> None:
        if planned is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(planned[0].due_s - now, self.run)

    def _waits_for_burst(self, lane: Lane, plan: BatchPlan) -> bool:
        """Whether the call is short, and due only since a device is idle; no other lane waits with it."""
        if plan.reason != "idle" or len(self._queue.lanes) > 1 or self._isolations.open or self._drain.begun:
            return False
        curve = lane.costs.curve
        return curve is not None and curve.call_s(min(lane.rows, lane.max_rows)) < _SHORT_CALL_S

    # --- a batch of a lane ---

    def _start_batch(self, lane: Lane, plan: BatchPlan, now: float) -> bool:
        """Forms a batch and starts it. Returns whether it was executed on the event loop."""
        # 1. Is it executed here? Otherwise several idle devices share the waiting rows.
        limit_s, function, slots = self._executor.max_inline_s, lane.function, self._slots
        expected_rows = min(lane.rows, plan.rows)
        quick = lane.costs.is_quick(expected_rows, limit_s)
        inline = quick and function.steady and not (function.devices or slots.reserved)
        shared = plan.shared and not inline and not function.devices and len(slots.free) > 1
        rows = slots.rows_for_next(lane, plan.rows) if shared else plan.rows

        # 2. Take requests. The list may be empty: all may have been cancelled in this turn of the event loop.
        requests = self._queue.take(lane, rows, plan.most_rows, now)
        if not requests:
            self._drain.check()
            return inline
        batch = BatchInFlight(lane, requests, plan.reason)
        try:
            lane.costs.record_dispatch(batch.rows, now)

            # 3. Fill the rest with requests of other buckets.
            if lane.key.padded:
                for other, other_rows in merge_buckets(lane, batch.rows, rows, self._queue):
                    batch.merge(other, self._queue.take(other, other_rows, other.max_rows, now))

            # 4. Execute it. It may be larger than was expected: the first request is taken as a whole.
            if inline and ((batch.rows <= expected_rows and not batch.elements) or batch.is_quick(limit_s)):
                self._executor.compute(batch)
                return True
            self._executor.start(batch, now, self._ended)
            return False
        except Exception:
            self._fail(batch)
            raise

    def _fail(self, batch: BatchInFlight) -> None:
        """Answers a batch that could not be started with an error, and goes on with other batches."""
        batch.fail("The batch could not be started")
        self.soon()

    def _ended(self, batch: BatchInFlight, execution: Execution) -> None:
        """Called when a device has executed the batch, and is free again."""
        isolated = self._executor.record_end(batch, execution)
        if self._drain.flows and batch.feeds:  # its answers bring the requests that the device gets next
            self._executor.complete(batch, execution, isolated)
            self.run()
        else:
            self.run()  # first: the device must not wait for the replies
            self._executor.complete(batch, execution, isolated)

    # --- a group of a batch that failed ---

    def _start_group_if_next(self, due: tuple[BatchPlan, Lane] | None, now: float) -> bool | None:
        """Starts a group if it is next, before the due lane; returns whether it was executed on the event loop.

        False also if everything has to be looked at again; None if the lane is next.
        """
        isolation = self._isolations.next(others_due=due is not None, ready=self._slots.claim)
        if isolation is not None:
            return self._start_group(isolation, now)
        if due is not None and not self._slots.takes(due[1].function):
            return False  # the group waits for several devices, and the device of the lane waits with it
        return None

    def _start_group(self, isolation: Isolation, now: float) -> bool:
        """Starts the next group of an isolation. Returns whether it was executed on the event loop."""
        group = self._isolations.next_group(isolation)
        if group is None:  # the other requests have expired or were cancelled
            self._completion.forget(isolation.batch)
            return False
        try:
            if group.is_quick(self._executor.max_inline_s) and not self._slots.reserved:
                self._executor.compute(group)
                return True
            self._executor.start(group, now, self._ended)
            return False
        except Exception:
            self._fail(group)
            answered = Execution([InferenceFailed()], now, now, 0, 0.0)
            if (isolated := self._isolations.record_end(group, answered, now)) is not None:
                self._completion.forget(isolated)
            raise
