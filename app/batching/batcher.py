"""The batcher: the core's event loop side, where everything else of it comes together.

Life of a request: `submit` pushes it -> `_dispatch` cuts a batch at the last instant before a free device
takes it -> the device executes -> `Replies` answers. `infer` is the same for those who await.

Rules
- Every decision is made in synchronous methods on the event loop; nothing here is shared with
  a thread but the batch that a device works on. Only this file, expiry.py and replies.py know the event loop.
- A call that takes less than `max_inline_s` is made on the event loop itself: handing it to a thread and
  back costs the loop more (docs/architecture.md, "Short calls").
- A batch is cut only when a device is free, so what was cancelled or has expired by then is
  simply not in it, and batches fill while devices work.
- `_dispatch` runs in a loop turn of its own, so all requests read in one turn share a batch.
- The caller owns its request: on every way out it withdraws it, and its entry leaves the queue.
- A reply is set once, by whoever comes first: result, error, deadline; never before `submit` returned.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType

from app.batching import inline as at_once
from app.batching.admission import check_in_time, check_open
from app.batching.batch import BatchInFlight, Execution, timed_execution
from app.batching.call_statistics import CallStatistics
from app.batching.completion import Replies
from app.batching.deadlines import Deadlines, Expiry
from app.batching.devices import Device, Slots
from app.batching.function import BatchFunction
from app.batching.policy import BatchingPolicy, BatchPlan
from app.batching.queue import Lane, RequestQueue
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.scheduler import Schedule
from app.batching.shapes.merging import company
from app.core.events import Listener, ignore
from app.core.inference import Array
from app.core.reply import Answer, Reply

logger = logging.getLogger(__name__)

Clock = Callable[[], float]


class Batcher:
    """Queues requests in order of arrival and runs them in batches on free devices.

    Args:
        devices: each works on one batch at a time; list one twice for two batches in flight.
        max_queue_rows: rows that may wait, over all lanes.
        clock: monotonic seconds, the same base as the event loop's timers.
        max_inline_s: functions whose calls take less, unless hindered, are called on the event loop; 0 for none.
        admission: reject at once what would foreseeably be answered too late.
        weights: by model, its share of the devices' time beside other models'; empty for none.
        preserve_order: answer the batches of a lane in the order in which they began.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: BatchingPolicy,
        max_queue_rows: int,
        listener: Listener = ignore,
        clock: Clock = time.monotonic,
        *,
        max_inline_s: float = 0.0,
        admission: bool = True,
        weights: Mapping[str, float] = MappingProxyType({}),
        preserve_order: bool = False,
    ) -> None:
        self.queue = RequestQueue(max_queue_rows)
        self._slots = Slots(devices, clock)
        self._schedule = Schedule(policy, weights)
        self._replies = Replies(listener, self._check_drained, in_order=preserve_order)
        self._admission = admission
        self._listener = listener
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._expiry = Expiry(self._deadlines, self.queue, clock, self._replies.somebody_left)
        self._dispatch_due = False
        self._due_timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._max_inline_s = max_inline_s
        self._pace = CallStatistics()
        self._failure = ""

    # --- the caller's side ---

    def submit(
        self,
        key: LaneKey,
        function: BatchFunction,
        inputs: Mapping[str, Array],
        rows: int,
        reply: Reply,
        *,
        deadline_s: float = inf,
        priority_offset_s: float = 0.0,
    ) -> RequestHandle:
        """Queues `rows` rows (1 for a request that runs alone).

        `reply` gets the Answer or a ServingError, on the event loop and after this returned.

        Raises:
            ShuttingDown, Overloaded, RequestTooLarge, DeadlineExceeded: rejected at the door; nothing is queued.
        """
        now = self._clock()
        check_open(rows, self.queue.max_rows, deadline_s, now, draining=self._drained is not None)
        request = PendingRequest(inputs, rows, reply, now, deadline_s, priority_offset_s)
        self.queue.push(key, function, request)
        most_calls = self.queue.rows + self._slots.count
        if deadline_s - now < most_calls * self._pace.slowest_s and self._admission:  # seldom: it costs time
            check_in_time(request, self.queue, self._slots, self._schedule, now)
        self._deadlines.push(request)
        if deadline_s < self._expiry.at_s:
            self._expiry.arm(deadline_s)
        self._dispatch_soon()
        return RequestHandle(request, self.cancel)

    async def infer(
        self,
        key: LaneKey,
        function: BatchFunction,
        inputs: Mapping[str, Array],
        rows: int,
        deadline_s: float = inf,
        *,
        priority_offset_s: float = 0.0,
    ) -> Answer:
        """`submit`, awaited.

        Raises:
            ShuttingDown, Overloaded, RequestTooLarge: rejected at the door; nothing was queued.
            DeadlineExceeded: the time ran out; what had not begun was not computed.
            InvalidRequest, InferenceFailed: what the model said to these rows.
        """
        reply: asyncio.Future[Answer] = self._loop.create_future()
        handle = self.submit(
            key, function, inputs, rows, reply, deadline_s=deadline_s, priority_offset_s=priority_offset_s
        )
        try:
            return await reply
        finally:
            handle.cancel()
            if reply.done() and not reply.cancelled():
                reply.exception()  # seen: asyncio must not report an error that nobody was left to hear

    def runs_inline(self, function: BatchFunction) -> bool:
        """Would a request be computed right now, on the event loop? Then there is no line to wait in."""
        quick = function.batchable and function.uncontended_s < self._max_inline_s
        free = quick and self._schedule.eager and not self.queue.rows and bool(self._slots.free)
        return free and self._drained is None and not self._replies.order

    def run_inline(
        self, key: LaneKey, function: BatchFunction, inputs: Mapping[str, Array], rows: int, arrivals_s: Sequence[float]
    ) -> Answer | None:
        """One call, right now, for the rows of requests that arrived in the same turn of the event loop.

        None where they have to be submitted one by one: they cannot be computed at once, or were rejected together.
        Raises InferenceFailed: as the model failed for all of them.
        """
        if not (self.runs_inline(function) and 0 < rows <= function.max_rows):
            return None
        return at_once.compute(key, function, inputs, rows, arrivals_s, self._clock, self._listener)

    def cancel(self, request: PendingRequest) -> None:
        """Nobody waits for it any more. What a device works on stays whole: its neighbours need it."""
        if self.queue.remove(request):
            request.forget()
        self._replies.somebody_left()

    # --- the devices' side ---

    def tune(self, model: str, policy: BatchingPolicy, weight: float = 0.0) -> None:
        """Forms the batches of all versions of a model by this policy, from the next one on; 0 is no weight."""
        self._schedule.tune(model, policy, weight)
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if self._slots.free and not self._dispatch_due:
            self._dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_due = False
        try:
            self._start_due_batches()
        except Exception as error:  # the loop may not die quietly: /livez turns red
            logger.exception("The batcher could not start a batch")
            self._failure = f"The batcher failed: {error!r}"

    def _start_due_batches(self) -> None:
        while self._slots.free and self.queue.lanes:
            now = self._clock()
            if self._expiry.at_s <= now:  # the timer may be late, and what has expired is never computed
                self._expiry.expire()
                continue
            plan, lane = self._schedule.first_due(self.queue.lanes, now)
            if plan.due_s > now and self._drained is None:
                self._arm_due(plan.due_s, now)
                return
            self._start_batch(lane, plan if plan.due_s <= now else plan._replace(reason="drain"), now)
            if lane.function.uncontended_s < self._max_inline_s:
                self._dispatch_soon()  # sockets come first: whoever wrote meanwhile shares the next batch
                return

    def _arm_due(self, due_s: float, now: float) -> None:
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._due_timer = self._loop.call_later(due_s - now, self._dispatch)

    def _start_batch(self, lane: Lane, plan: BatchPlan, now: float) -> None:
        inline = lane.function.uncontended_s < self._max_inline_s
        rows = plan.rows if inline or len(self._slots.free) == 1 else self._slots.share(lane, plan.rows)
        requests = self.queue.take(lane, rows, plan.most_rows, now)
        if not requests:
            self._check_drained()
            return
        batch = BatchInFlight(lane, requests, plan.reason)
        lane.costs.taken(batch.rows, now)
        if lane.key.padded:
            for neighbour, guest_rows in company(lane, batch.rows, rows, self.queue.lanes):
                batch.add(neighbour, self.queue.take(neighbour, guest_rows, neighbour.max_rows, now))
        if inline:
            execution = timed_execution(lane.function, requests, self._clock)
            self._begun(batch)
            self._note(batch, execution)
            self._replies.ended(batch, execution)
        else:
            self._pace.expect(batch.expected_s)
            self._slots.start(batch, now, self._ended)
            self._begun(batch)

    def _begun(self, batch: BatchInFlight) -> None:
        self._schedule.begun(batch)
        self._replies.begun(batch)

    def _ended(self, batch: BatchInFlight, execution: Execution) -> None:
        self._note(batch, execution)
        self._dispatch()  # first: the device must not wait for the replies
        self._replies.ended(batch, execution)

    def _note(self, batch: BatchInFlight, execution: Execution) -> None:
        self._pace.note(batch.function, execution)
        self._schedule.ended(batch, execution.ended_s - execution.started_s)

    # --- the end, and health ---

    def begin_drain(self) -> None:
        """From now on nothing new is accepted and everything that waits is due."""
        if self._drained is None:
            self._drained = self._loop.create_future()
            self._dispatch_soon()
            self._check_drained()

    async def drain(self) -> None:
        """Waits until everything accepted is answered."""
        self.begin_drain()
        assert self._drained is not None  # noqa: S101 - set by begin_drain
        await asyncio.shield(self._drained)

    def _check_drained(self) -> None:
        idle = not self.queue.rows and self._slots.idle
        if idle and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def close(self) -> None:
        """Stops timers and devices. To be called when drained, or when what waits may be lost."""
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._expiry.close()
        self._slots.close()

    def failures(self, stranded_after_s: float) -> list[str]:
        """What is dead or stuck; empty while all is well."""
        now = self._clock()
        found = self._slots.failures(now)
        if self._failure:
            found.append(self._failure)
        if self._slots.free and self.queue.lanes:
            plan, _ = self._schedule.first_due(self.queue.lanes, now)
            if now - plan.due_s > stranded_after_s:
                found.append(f"A batch is due for more than {stranded_after_s:g} s although a device is free")
        return found

    def __repr__(self) -> str:
        return f"<Batcher {self.queue!r}, {self._slots!r}>"
