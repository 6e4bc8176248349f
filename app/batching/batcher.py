"""The batcher: the only file of the core that waits.

Life of a request: `submit` pushes it -> `_dispatch` cuts a batch at the last instant before a free device
takes it -> the device executes -> `_finished` replies. `infer` is the same for those who await.

Rules
- Every decision is made in synchronous methods on the event loop; nothing here is shared with
  a thread but the batch that a device works on.
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
from functools import partial
from math import inf

from app.batching.admission import seconds_to_answer
from app.batching.batch import Answer, Execution, timed_execution
from app.batching.busyness import Busyness
from app.batching.company import company
from app.batching.deadlines import Deadlines
from app.batching.device import Device
from app.batching.function import BatchFunction
from app.batching.lane import Lane, LaneKey
from app.batching.pending import ANSWERED, PendingRequest, Reply
from app.batching.policy import HEADROOM, BatchingPolicy, BatchPlan
from app.batching.queue import RequestQueue
from app.batching.submission import StartedBatch, Submission
from app.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    OutOfMemory,
    Overloaded,
    RequestTooLarge,
    ServingError,
    ShuttingDown,
)
from app.events import BatchExecuted, Listener, ignore
from app.inference import Array, BatchTiming

logger = logging.getLogger(__name__)

Clock = Callable[[], float]

#: How much of the slowest call is remembered at the next.
_FADE = 0.99


class Batcher:
    """Queues requests in order of arrival and runs them in batches on free devices.

    Args:
        devices: each works on one batch at a time; list one twice for two batches in flight.
        max_queue_rows: rows that may wait, over all lanes.
        clock: monotonic seconds, the same base as the event loop's timers.
        cpu_clock: seconds of CPU that the process has used.
        max_inline_s: functions whose calls take less, unless hindered, are called on the event loop; 0 for none.
        admission: refuse at once what would foreseeably be answered too late.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: BatchingPolicy,
        max_queue_rows: int,
        listener: Listener = ignore,
        clock: Clock = time.monotonic,
        *,
        cpu_clock: Clock = time.process_time,
        max_inline_s: float = 0.0,
        admission: bool = True,
    ) -> None:
        self.queue = RequestQueue(max_queue_rows)
        self._devices = tuple(devices)
        self._free = list(devices)
        self._policy = policy
        self._policies: dict[str, BatchingPolicy] = {}
        self._eager = policy.eager
        self._under_way: dict[StartedBatch, float] = {}
        self._admission = admission
        self._slowest_s = 0.0
        self._listener = listener
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._dispatch_due = False
        self._due_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._expiry_s = inf
        self._drained: asyncio.Future[None] | None = None
        self._max_inline_s = max_inline_s
        self._cpu_clock = cpu_clock
        self._busyness = Busyness(clock(), cpu_clock())
        self._idle_since_s = -inf
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
        head_start_s: float = 0.0,
    ) -> Submission:
        """Queues `rows` rows (1 for a request that runs alone).

        `reply` gets the Answer or a ServingError, on the event loop and after this returned.

        Raises:
            ShuttingDown, Overloaded, RequestTooLarge, DeadlineExceeded: refused at the door; nothing is queued.
        """
        now = self._clock()
        self._check_open(rows, deadline_s, now)
        request = PendingRequest(inputs, rows, reply, now, deadline_s, head_start_s)
        self.queue.push(key, function, request)
        most_calls = self.queue.rows + len(self._devices)
        if deadline_s - now < most_calls * self._slowest_s and self._admission:  # seldom: looking closer costs time
            self._check_in_time(request, now)
        self._deadlines.push(request)
        if deadline_s < self._expiry_s:
            self._arm_expiry(deadline_s)
        self._dispatch_soon()
        return Submission(request, self.withdraw)

    async def infer(
        self,
        key: LaneKey,
        function: BatchFunction,
        inputs: Mapping[str, Array],
        rows: int,
        deadline_s: float = inf,
        *,
        head_start_s: float = 0.0,
    ) -> Answer:
        """`submit`, awaited.

        Raises:
            ShuttingDown, Overloaded, RequestTooLarge: refused at the door; nothing was queued.
            DeadlineExceeded: the time ran out; what had not begun was not computed.
            InvalidRequest, InferenceFailed: what the model said to these rows.
        """
        reply: asyncio.Future[Answer] = self._loop.create_future()
        submission = self.submit(key, function, inputs, rows, reply, deadline_s=deadline_s, head_start_s=head_start_s)
        try:
            return await reply
        finally:
            submission.withdraw()
            if reply.done() and not reply.cancelled():
                reply.exception()  # seen: asyncio must not report an error that nobody was left to hear

    def answers_at_once(self, function: BatchFunction) -> bool:
        """Would a request be computed right now, on the event loop? Then there is no line to wait in."""
        quick = function.batchable and function.unhindered_s < self._max_inline_s
        return quick and self._eager and not self.queue.rows and bool(self._free) and self._drained is None

    def run_at_once(
        self, key: LaneKey, function: BatchFunction, inputs: Mapping[str, Array], rows: int, arrivals_s: Sequence[float]
    ) -> Answer | None:
        """One call, right now, for the rows of requests that arrived in the same turn of the event loop.

        None where they have to be submitted one by one: they cannot be computed at once, or were refused together.
        Raises InferenceFailed: as the model failed for all of them.
        """
        if not (self.answers_at_once(function) and 0 < rows <= function.max_rows):
            return None
        execution = timed_execution(function, [PendingRequest(inputs, rows, ANSWERED, arrivals_s[0])], self._clock)
        compute_s = execution.ended_s - execution.started_s
        function.took(compute_s)
        function.costs(key.shape).note(function.sizes.padded(rows), compute_s)
        outcome = execution.outcomes[0]
        if isinstance(outcome, InvalidRequest | OutOfMemory) or not function.batchable:
            return None
        waits = [execution.started_s - arrival_s for arrival_s in arrivals_s]
        failures = (len(waits), rows) if isinstance(outcome, ServingError) else (0, 0)
        self._listener(BatchExecuted(*key[:3], rows, execution.padded_rows, "idle", compute_s, waits, *failures))
        if isinstance(outcome, ServingError):
            raise outcome
        return Answer(outcome, BatchTiming(waits[0], compute_s, rows))

    def withdraw(self, request: PendingRequest) -> None:
        """Nobody waits for it any more. What a device works on stays whole: its neighbours need it."""
        if self.queue.remove(request):
            request.forget()
            self._check_drained()

    def _check_open(self, rows: int, deadline_s: float, now: float) -> None:
        if self._drained is not None:
            raise ShuttingDown("The server is shutting down")
        if rows > self.queue.max_rows:
            raise RequestTooLarge(f"The request has {rows} rows; the queue holds at most {self.queue.max_rows}")
        if deadline_s <= now:
            raise DeadlineExceeded("The request's time was over when it arrived")

    def _check_in_time(self, request: PendingRequest, now: float) -> None:
        """Raises Overloaded where the request, queued already, would foreseeably be late. An idle device takes all."""
        if not self._under_way and self.queue.rows == request.weight:
            return
        busy_s = [max(0.0, end_s - now) for end_s in self._under_way.values()]
        needed_s = seconds_to_answer(request, self.queue.lanes, busy_s, len(self._devices), self._most_rows)
        time_s = request.deadline_s - now
        if needed_s > HEADROOM * time_s:
            self.queue.remove(request)
            error = Overloaded(
                f"The request has {1000 * time_s:.0f} ms left, and answers take {1000 * needed_s:.0f} ms at the moment"
            )
            error.retry_after_s = needed_s - HEADROOM * time_s
            raise error

    # --- how batches are formed ---

    def tune(self, model: str, policy: BatchingPolicy) -> None:
        """Forms the batches of all versions of a model by this policy, from the next one on."""
        self._policies[model] = policy
        self._eager = self._policy.eager and all(each.eager for each in self._policies.values())
        self._dispatch_soon()

    def _policy_of(self, lane: Lane) -> BatchingPolicy:
        return self._policies.get(lane.key.model, self._policy)

    def _most_rows(self, lane: Lane) -> int:
        return self._policy_of(lane).most_rows(lane)

    # --- time ---

    def _dispatch_soon(self) -> None:
        if self._free and not self._dispatch_due:
            self._dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _arm_due(self, due_s: float, now: float) -> None:
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._due_timer = self._loop.call_later(due_s - now, self._dispatch)

    def _arm_expiry(self, deadline_s: float) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry_s = deadline_s
        self._expiry_timer = None
        if deadline_s != inf:
            self._expiry_timer = self._loop.call_later(max(0.0, deadline_s - self._clock()), self._expire)

    def _expire(self) -> None:
        for request in self._deadlines.pop_expired(self._clock()):
            self.queue.remove(request)
            _fail(request, DeadlineExceeded("The request's time ran out before its answer was ready"))
        self._arm_expiry(self._deadlines.next_s)
        self._check_drained()

    # --- the devices' side ---

    def _dispatch(self) -> None:
        self._dispatch_due = False
        try:
            self._start_due_batches()
        except Exception as error:  # the loop may not die quietly: /livez turns red
            logger.exception("The batcher could not start a batch")
            self._failure = f"The batcher failed: {error!r}"

    def _start_due_batches(self) -> None:
        while self._free and self.queue.lanes:
            now = self._clock()
            if self._expiry_s <= now:  # the timer may be late, and what has expired is never computed
                self._expire()
                continue
            plan, lane = self._first_due(now)
            if plan.due_s > now and self._drained is None:
                self._arm_due(plan.due_s, now)
                return
            self._start_batch(lane, plan if plan.due_s <= now else plan._replace(reason="drain"), now)
            if lane.function.unhindered_s < self._max_inline_s:
                self._dispatch_soon()  # sockets come first: whoever wrote meanwhile shares the next batch
                return

    def _first_due(self, now: float) -> tuple[BatchPlan, Lane]:
        """Of the lanes that are due the most urgent one; else the next one due. Of equal ones the oldest."""
        idle_since_s, lanes = self._idle_since_s, self.queue.lanes
        if len(lanes) == 1:
            lane = next(iter(lanes))
            return self._policy_of(lane).plan(lane, idle_since_s), lane

        def place(planned: tuple[BatchPlan, Lane]) -> tuple[bool, float, float]:
            (due_s, *_), lane = planned
            if due_s > now:
                return True, due_s, lane.oldest_arrival_s
            return False, lane.urgency_s, lane.oldest_arrival_s

        return min(((self._policy_of(lane).plan(lane, idle_since_s), lane) for lane in lanes), key=place)

    def _start_batch(self, lane: Lane, plan: BatchPlan, now: float) -> None:
        requests = self.queue.take(lane, plan.rows, plan.most_rows, now)
        if not requests:
            self._check_drained()
            return
        batch = StartedBatch(lane, requests, plan.reason)
        lane.costs.taken(batch.rows, now)
        if lane.key.padded:
            for neighbour, rows in company(lane, batch.rows, plan.rows, self.queue.lanes):
                batch.add(neighbour.function, self.queue.take(neighbour, rows, neighbour.max_rows, now))
        if lane.function.unhindered_s < self._max_inline_s:
            execution = timed_execution(lane.function, requests, self._clock)
            self._note_call(lane.function, execution)
            self._idle_since_s = -inf  # no pause: nothing was handed over
            self._finished(batch, execution)
            return
        device = self._free.pop()
        self._under_way[batch] = now + batch.expected_s
        self._slowest_s = max(self._slowest_s, batch.expected_s)

        def done(execution: Execution) -> None:
            self._free.append(device)
            del self._under_way[batch]
            self._note_call(batch.function, execution)
            self._dispatch()  # first: the device must not wait for the replies
            self._finished(batch, execution)

        try:
            device.start(partial(timed_execution, lane.function, requests, self._clock), done)
        except Exception:
            self._free.append(device)
            del self._under_way[batch]
            for request in requests:
                _fail(request, InferenceFailed(f"Device {device.name} takes no work"))
            batch.left()
            raise

    def _note_call(self, function: BatchFunction, execution: Execution) -> None:
        busy = self._busyness.note(execution.ended_s, self._cpu_clock())
        self._idle_since_s = execution.ended_s if busy else -inf  # no pause while there is CPU to spare
        seconds = execution.ended_s - execution.started_s
        function.took(seconds)
        self._slowest_s = max(seconds, self._slowest_s * _FADE)

    def _finished(self, batch: StartedBatch, execution: Execution) -> None:
        compute_s = execution.ended_s - execution.started_s
        requests, rows = batch.requests, batch.rows
        waits = [execution.started_s - request.arrival_s for request in requests]
        failed_rows = []
        for request, outcome, wait_s in zip(requests, execution.outcomes, waits, strict=True):
            if isinstance(outcome, ServingError):
                failed_rows.append(request.rows)
                _fail(request, outcome)
            elif not request.reply.done():
                request.reply.set_result(Answer(outcome, BatchTiming(wait_s, compute_s, rows)))
            request.forget()
        batch.left()
        if not failed_rows:
            batch.took(compute_s)
        self._check_drained()
        self._listener(
            BatchExecuted(
                *batch.key[:3],
                rows,
                execution.padded_rows,
                batch.reason,
                compute_s,
                waits,
                len(failed_rows),
                sum(failed_rows),
                sum([request.deadline_s <= execution.started_s for request in requests]),
            )
        )

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
        idle = not self.queue.rows and len(self._free) == len(self._devices)
        if idle and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def close(self) -> None:
        """Stops timers and devices. To be called when drained, or when what waits may be lost."""
        for timer in (self._due_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        for device in self._devices:
            device.close()

    def failures(self, stranded_after_s: float) -> list[str]:
        """What is dead or stuck; empty while all is well."""
        now = self._clock()
        found = [failure for device in self._devices if (failure := device.failure(now))]
        if self._failure:
            found.append(self._failure)
        if self._free and self.queue.lanes and now - self._first_due(now)[0].due_s > stranded_after_s:
            found.append(f"A batch is due for more than {stranded_after_s:g} s although a device is free")
        return found

    def __repr__(self) -> str:
        return f"<Batcher {self.queue!r}, {len(self._free)} of {len(self._devices)} devices free>"


def _fail(request: PendingRequest, error: ServingError) -> None:
    if not request.reply.done():
        request.reply.set_exception(error)
