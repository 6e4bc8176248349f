"""The batcher: the side of the batching core that waits on the event loop, where all its other parts come together.

The life of a request: `submit` queues it -> `_dispatch` puts it into a batch at the moment in which a free device takes
that -> the device executes the batch -> `Completion` answers.

Rules
- Every decision is made in synchronous methods on the event loop. A device thread reads the batch that it executes, its
  function and that function's padding; it writes none of them (test_batch.py). Only this file, deadlines.py and
  completion.py know the event loop.
- A batch whose call, by its shape and size, is known to take less than `max_inline_s` is executed on the event loop:
  handing it to a thread and back costs the loop more (docs/architecture.md, "Short calls").
- A batch is formed only when a device is free. So batches fill while devices are busy, and requests that were cancelled
  or have expired by then are not in them (tests/laws/test_batching.py).
- After `submit`, `_dispatch` runs in the next turn of the event loop, so requests that are read in one turn can share a
  batch. When a device becomes free it runs at once. If beginning what was read takes several turns, a short call waits
  for the last of them, at most `burst.LONGEST_S`: while it lasts, hardly a request is begun that could share the next.
- A batch that failed because of some of its requests is run again in smaller groups, each a batch of its own, in turns
  with what else is due (isolation.py).
- A step of a larger request (app/pipelines) is an ordinary request. The first is judged for all steps; later ones are
  queued in any case, before what arrives afterwards, and a batch that holds steps is answered before the device is
  given the next one: its answers bring the steps that follow.
- The caller owns its request: it cancels it on every way out, and then the request leaves the queue.
- A reply is set once, by the first of result, error and deadline, and never before `submit` has returned. What is
  submitted together, or supplied to a free device, may be computed at once: a short call for which nothing else waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType

from app.batching.admission import Admission, check_accepting, refusal_cause
from app.batching.batch import BatchInFlight, Execution, execute
from app.batching.completion import Completion
from app.batching.cost_model import Costs
from app.batching.deadlines import Deadlines, Expiry
from app.batching.devices import Device, DeviceSlots
from app.batching.function import BatchFunction
from app.batching.isolation import Isolation, Isolations, Suspects
from app.batching.merging import merge_buckets
from app.batching.policy import BatchingPolicy, BatchPlan
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, LaterSteps, PendingRequest, RequestHandle
from app.batching.scheduler import Scheduler
from app.batching.shadow_check import ShadowChecks
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from app.batching.waiting.supplies import Supplies, Supply
from app.core.batch_sizes import BatchSizes
from app.core.burst import Burst
from app.core.errors import InvalidRequest, ServingError
from app.core.events import BatchRejected, Listener, RequestsRefused, ignore
from app.core.inference import Array
from app.core.interfaces import CoalescedHandle
from app.core.reply import CoalescedReply, Reply

logger = logging.getLogger(__name__)

Clock = Callable[[], float]

#: A shorter call waits for the rest of a burst: it would end before enough for the next one has begun. Chosen.
_SHORT_CALL_S = 0.002


class Batcher:
    """Queues requests in order of arrival and runs them in batches on free devices.

    Args:
        devices: each works on one batch at a time; list one twice for two batches in flight.
        max_queue_rows, max_queue_bytes: of the requests that may wait, over all lanes; no rows: only bytes count.
        clock: monotonic seconds, the same base as the event loop's timers.
        max_inline_s: calls that are known to take less are made on the event loop; 0 for none.
        admission: reject a request at once if it is expected to miss its deadline.
        weights: by model, its share of the devices' time beside other models'; empty for none.
        fair_callers: the callers whose requests wait share devices and room, whoever sends more.
        caller_weights: of callers, by name, those that are not 1; it may change.
        preserve_order: answer the batches of a lane in the order in which they were started.
        burst: requests that have arrived and are about to be submitted; short calls wait for its end.
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
        fair_callers: bool = False,
        caller_weights: Mapping[str, float] = MappingProxyType({}),
        max_queue_bytes: float = inf,
        burst: Burst | None = None,
    ) -> None:
        # Settings and surroundings
        self._listener = listener
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._max_inline_s = max_inline_s
        self._burst = burst or Burst(clock)
        self._burst.on_end(self._dispatch)  # now: in the next turn there may be another burst

        # What waits, what is in flight, and how it is answered
        callers = Callers(caller_weights) if fair_callers else None
        self._scheduler = Scheduler(policy, weights, callers, self._note_failure)
        self.queue = RequestQueue(
            max_queue_rows, self._scheduler.most_rows, weights, callers=callers, max_bytes=max_queue_bytes
        )
        self._slots = DeviceSlots(devices, clock)
        self._isolations = Isolations(self.queue.take_room, self.queue.give_back)
        self._suspects = Suspects()
        parts = self.queue, self._slots, self._scheduler, self._isolations
        self._admission = Admission(*parts, self._clock) if admission else None
        self._completion = Completion(listener, self._check_drained, in_order=preserve_order)
        self._deadlines = Deadlines()
        self._expiry = Expiry(self._deadlines, self.queue, clock, self._completion.on_cancel, listener)
        self._shadow = ShadowChecks(self._slots, self._has_waiting, self._shadow_ended, listener, clock)
        self._supplies = Supplies(self._note_failure)
        self._flows = 0  # requests of several steps that are not answered

        # The next dispatch
        self._freed_s = -inf  # when a device became free that was not
        self._inline_ended_s = -inf
        self._dispatch_due = False
        self._due_timer: asyncio.TimerHandle | None = None

        # The end
        self._drained: asyncio.Future[None] | None = None
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
        caller: str = "",
    ) -> RequestHandle:
        """Queues a request of `rows` rows and returns at once.

        Args:
            inputs: name -> array of shape [rows, ...]; if `function` is not batchable, of any shape, and `rows` is 1.
            reply: set once, on the event loop, to an Answer or a ServingError.
            deadline_s: monotonic seconds; the request is not computed after it.
            priority_offset_s: see priority.py.
            caller: who sent it, for fairness among callers.

        Raises:
            Overloaded: the queue is full, or the request cannot finish in time (admission.py says how that is
                estimated). Nothing was queued.
            ShuttingDown, DeadlineExceeded: nothing was queued.
        """
        now = self._clock()
        try:
            return self._queue(
                key, function, PendingRequest(inputs, rows, reply, now, deadline_s, priority_offset_s, caller), now
            )
        except ServingError as error:
            self._tell_refused(error)
            raise

    def submit_step(
        self,
        key: LaneKey,
        function: BatchFunction,
        inputs: Mapping[str, Array],
        rows: int,
        reply: Reply,
        *,
        arrival_s: float,
        deadline_s: float = inf,
        priority_offset_s: float = 0.0,
        caller: str = "",
        later: LaterSteps | None = None,
        requests: int = 1,
        supplied: bool = False,
    ) -> RequestHandle:
        """`submit` for a step of a larger request, queued as what arrived at `arrival_s`. See also `begin_flow`.

        Args:
            later: of a first step, which is judged for the whole: what follows it. None for a step of a request that
                was admitted: it is queued in any case.
            requests: how many have this step together; of several `reply` is a CoalescedReply.
            supplied: it stood ready until `when_free` asked for it: it is computed before this returns if that is quick
                and nothing else waits.

        Raises: of a first step, as `submit`.
        """
        now = self._clock()
        request = PendingRequest(inputs, rows, reply, now, deadline_s, priority_offset_s, caller)
        request.entered_s = arrival_s
        request.feeds = True
        if requests > 1:
            request.coalesced_s = (now,) * requests
        if later is not None:
            try:
                return self._queue(key, function, request, now, later)
            except ServingError as error:
                self._tell_refused(error, requests)
                raise
        if supplied and self._supplies.alone and self._computes_now and not (self._isolations or self._burst.is_open):
            batch = BatchInFlight(Lane(key, function), [request], "idle")
            if batch.rows <= function.max_rows and batch.is_quick(self._max_inline_s):
                self._supplies.computed()
                self._execute_now(batch, now)
                return RequestHandle(request, self.cancel)
        request.late = True
        self.queue.push(key, function, request, admitted=True)
        self._watch_deadline(request)
        self._dispatch_soon()
        return RequestHandle(request, self.cancel)

    def when_free(self, supply: Supply) -> None:
        """Calls `supply` once, when a device is free and before it is given a batch: what it submits may be in that."""
        self._supplies.add(supply)
        if not self._supplies.asking:  # else it would come back in each turn of the loop until what waits is due
            self._dispatch_soon()

    def full_call_rows(self, model: str, costs: Costs | None, max_rows: int) -> int:
        """How many of at most `max_rows` rows the model's next full batch has; larger requests leave in parts."""
        return self._scheduler.next_full_batch(model, costs or Costs(BatchSizes((max_rows,))), max_rows)

    def check_flow(self, request: PendingRequest, needs: LaterSteps) -> None:
        """The judgement of a request that is not queued itself when it begins: its calls will be.

        Args:
            needs: all of its calls.

        Raises: as `submit`.
        """
        now = self._clock()
        try:
            check_accepting(request.deadline_s, now, draining=self._drained is not None)
            if not needs.beside:
                self.queue.check_room(request, needs.models)
            if self._admission is not None:
                self._admission.check_flow(request.deadline_s - now, needs)
        except ServingError as error:
            self._tell_refused(error)
            raise

    def watch(self, request: PendingRequest) -> None:
        """Answers a request that is not queued when its deadline has come."""
        self._watch_deadline(request)

    @property
    def calls_at_once(self) -> int:
        """How many calls there may be at a time."""
        return self._slots.count

    def begin_flow(self) -> None:
        """A request of several steps was accepted: until `end_flow` the batcher is not idle."""
        self._flows += 1

    def end_flow(self) -> None:
        self._flows -= 1
        if not self._flows:
            self._check_drained()

    def _queue(
        self,
        key: LaneKey,
        function: BatchFunction,
        request: PendingRequest,
        now: float,
        later: LaterSteps | None = None,
    ) -> RequestHandle:
        check_accepting(request.deadline_s, now, draining=self._drained is not None)
        if self._suspects and self._suspects.has(request.caller, now):
            key = key._replace(apart=True)
        room_found = later is not None and later.beside > 0  # with the first of the steps that begin side by side
        if later is not None and not room_found:
            self.queue.check_room(request, later.models)
        self.queue.push(key, function, request, admitted=room_found)
        if self._admission is not None:
            self._admission.check(request, now, later)
        self._watch_deadline(request)
        self._dispatch_soon()
        return RequestHandle(request, self.cancel)

    def _tell_refused(self, error: ServingError, number: int = 1) -> None:
        cause = refusal_cause(error)
        if cause:
            self._listener(RequestsRefused(cause, number))

    def _watch_deadline(self, request: PendingRequest) -> None:
        self._deadlines.push(request)
        if request.deadline_s < self._expiry.at_s:
            self._expiry.arm(request.deadline_s)

    def coalescable_rows(self, model: str, function: BatchFunction) -> int:
        """How many rows of requests that arrive together are best submitted as one; 0 if a row takes long.

        As a batch, one of many tries the next larger size.
        """
        costs = function.last_costs
        if costs is None or not function.coalescable or not costs.is_quick(1, self._max_inline_s):
            return 0
        return self._scheduler.next_full_batch(model, costs, function.max_rows)

    def submit_coalesced(
        self,
        key: LaneKey,
        function: BatchFunction,
        inputs: Mapping[str, Array],
        rows: int,
        reply: CoalescedReply,
        *,
        arrivals_s: Sequence[float],
        deadline_s: float = inf,
        caller: str = "",
    ) -> CoalescedHandle | None:
        """Takes the rows of requests that arrived in the same turn of the event loop as one request.

        They are computed now, before this returns, if that is quick and nothing waits; otherwise they are queued.
        Returns None if each has to be submitted by itself, because they find no room together, are ragged, or have no
        time left. If the model rejects them, each is run again and answered as if it had been submitted alone.

        Args:
            arrivals_s: of each of the requests, monotonic seconds; `submit` says what the others are.
        """
        lane = Lane(key, function)
        if not (function.coalescable and 0 < rows <= lane.max_rows):
            return None
        request = PendingRequest(inputs, rows, reply, arrivals_s[0], deadline_s, 0.0, caller)
        request.coalesced_s = arrivals_s
        batch = BatchInFlight(lane, [request], "idle")
        now = self._clock()
        if deadline_s <= now:  # each is told so
            return None
        try:
            if not (self._computes_now and batch.is_quick(self._max_inline_s)):
                full = self._scheduler.next_full_batch(key.model, lane.costs, lane.max_rows)
                return self._queue(key, function, request, now) if rows <= full else None
        except ServingError:  # a single one may find room, and in time
            return None
        self._execute_now(batch, now)
        if self._isolations.waiting:
            self._dispatch_soon()
        return RequestHandle(request, self.cancel)

    def _execute_now(self, batch: BatchInFlight, now: float) -> None:
        """Executes a batch whose request was in no lane on the event loop."""
        batch.function.requests_under_way += 1
        batch.costs.record_dispatch(batch.rows, now)
        self._execute(batch, now, inline=True)

    @property
    def _computes_now(self) -> bool:
        """Whether a request would find a free device and no queue."""
        free = self._scheduler.eager and not self.queue.rows and bool(self._slots.free) and not self._slots.reserved
        return free and self._drained is None and not self._completion.order

    def cancel(self, request: PendingRequest) -> bool:
        """Removes a request from the queue; returns whether it waited there.

        A batch that is being computed stays whole: its other requests need it.
        """
        waited = self.queue.remove(request)
        if waited:
            request.release()
        self._completion.on_cancel()
        return waited

    def tune(self, model: str, policy: BatchingPolicy, weight: float = 0.0) -> None:
        """Sets policy and weight (0 for none) of all versions of a model, from the next batch on."""
        self._scheduler.tune(model, policy, weight)
        self.queue.room.set_weight(model, weight)
        self.queue.replan()
        self._dispatch_soon()

    def add_version(self, model: str) -> None:
        """A version of the model is served from now on: room in the queue is kept for it."""
        self.queue.room.add_version(model)
        self._slots.model_came(model)

    def remove_version(self, model: str) -> None:
        """A version that was added is not served any more."""
        self.queue.room.remove_version(model)
        if not self.queue.room.serves(model):
            self._slots.model_went(model)

    # --- the devices' side ---

    def _dispatch_soon(self) -> None:
        if self._slots.free and not self._dispatch_due:
            self._dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_due = False
        try:
            self._start_due_batches()
        except Exception as error:
            self._note_failure("The batcher could not start a batch", error)
            self._check_drained()

    def _note_failure(self, what: str, error: Exception) -> None:
        """It must not go unnoticed: /livez turns red."""
        logger.exception(what)
        self._failure = f"The batcher failed: {error!r}"

    def _start_due_batches(self) -> None:
        self._slots.await_nothing()
        while self._slots.free and (self.queue.lanes or self._isolations.waiting or self._supplies):
            # 1. Expired requests leave first, also if the timer is late: they are never computed. What stands ready
            #    elsewhere comes into the queue, or was executed here; see 5.
            now = self._clock()
            if self._expiry.at_s <= now:
                self._expiry.expire()
                continue
            asked = bool(self._supplies)
            if asked and self._supplies.ask(self._has_lanes):
                self._dispatch_soon()
                return
            now = self._clock() if asked else now  # what came into the queue by it has arrived by then

            # 2. A group of requests of a rejected batch, in turns with what else is due.
            planned = self._first_due(now)
            due = planned is not None and (planned[0].due_s <= now or self._drained is not None)
            if self._isolations and (inline := self._start_group_in_turn(planned if due else None, now)) is not None:
                if inline:
                    self._dispatch_soon()
                    return
                continue

            # 3. Nothing is due: come back when it is. What waits for devices is looked at when one is given back.
            if planned is None or not due:
                self._dispatch_when_due(planned, now)
                return
            plan, lane = planned

            # 4. A short call waits for what arrived together with its requests.
            if self._burst.is_open and self._waits_for_burst(lane, plan):
                return

            # 5. After a batch on the event loop sockets are read first: their requests share the next batch.
            if self._start_batch(lane, plan if plan.due_s <= now else plan._replace(reason="drain"), now):
                self._dispatch_soon()
                return

    def _first_due(self, now: float) -> tuple[BatchPlan, Lane] | None:
        """What is due first. Where that needs devices that are not free, these wait for it, and others get the rest."""
        passed_over: set[str] = set()
        while self.queue.orders.keys() - passed_over if passed_over else self.queue.lanes:
            plan, lane = self._scheduler.first_due(self.queue, now, passed_over)
            due = plan.due_s <= now or self._drained is not None
            if not due or self._slots.claim(lane.function):
                return plan, lane
            passed_over.add(lane.key.model)
        return None

    def _dispatch_when_due(self, planned: tuple[BatchPlan, Lane] | None, now: float) -> None:
        if planned is None:
            return
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._due_timer = self._loop.call_later(planned[0].due_s - now, self._dispatch)

    def _waits_for_burst(self, lane: Lane, plan: BatchPlan) -> bool:
        """Whether the call is short, and due only since a device is idle. Nobody else waits with it."""
        if plan.reason != "idle" or len(self.queue.lanes) > 1 or self._isolations or self._drained is not None:
            return False
        curve = lane.costs.curve
        return curve is not None and curve.call_s(min(lane.rows, lane.max_rows)) < _SHORT_CALL_S

    def _start_batch(self, lane: Lane, plan: BatchPlan, now: float) -> bool:
        """Returns whether it was executed on the event loop."""
        # 1. Take requests; the list may be empty, as all may have been cancelled in this turn.
        expected_rows = min(lane.rows, plan.rows)
        quick = lane.costs.is_quick(expected_rows, self._max_inline_s)
        function = lane.function
        inline = quick and function.steady and not (function.devices or self._slots.reserved)
        shared = plan.shared and not inline and not function.devices and len(self._slots.free) > 1
        rows = self._slots.rows_for_next(lane, plan.rows) if shared else plan.rows
        requests = self.queue.take(lane, rows, plan.most_rows, now)
        if not requests:
            self._check_drained()
            return inline
        batch = BatchInFlight(lane, requests, plan.reason)
        try:
            lane.costs.record_dispatch(batch.rows, now)

            # 2. Fill what is left with requests of other buckets.
            if lane.key.padded:
                for other, other_rows in merge_buckets(lane, batch.rows, rows, self.queue):
                    batch.merge(other, self.queue.take(other, other_rows, other.max_rows, now))

            # 3. Execute it. It may be larger than was expected: the first request is taken as a whole.
            known = batch.rows <= expected_rows and not batch.elements
            return self._execute(batch, now, inline=inline and (known or batch.is_quick(self._max_inline_s)))
        except Exception:
            self._fail(batch)
            raise

    def _fail(self, batch: BatchInFlight) -> None:
        """The batch was not started: its requests, which the queue gave up, are answered, and others get their turn."""
        batch.fail("The batch could not be started")
        self._dispatch_soon()

    def _start_group_in_turn(self, due: tuple[BatchPlan, Lane] | None, now: float) -> bool | None:
        """Starts a group if it is their turn beside the lane that is due; returns whether on the event loop.

        False also if everything has to be looked at again, None if the lane has its turn.
        """
        isolation = self._isolations.next(others_due=due is not None, ready=self._slots.claim)
        if isolation is not None:
            return self._start_group(isolation, now)
        if due is not None and not self._slots.takes(due[1].function):
            return False  # the group waits for several devices, and what the lane was to get waits with it
        return None

    def _start_group(self, isolation: Isolation, now: float) -> bool:
        """Runs the next group of an isolation. Returns whether it was executed on the event loop."""
        group = self._isolations.next_group(isolation)
        if group is None:  # the others have expired or were cancelled
            self._completion.forget(isolation.batch)
            return False
        try:
            inline = group.is_quick(self._max_inline_s) and not self._slots.reserved
            return self._execute(group, now, inline=inline)
        except Exception:
            self._fail(group)
            self._end_isolation(self._isolations.record_lost(group, now))
            raise

    def _execute(self, batch: BatchInFlight, now: float, *, inline: bool) -> bool:
        """Executes the batch here, or gives it to a device. Returns `inline`."""
        if not batch.function.batchable:
            self._take_apart(batch)
        batch.since_s = max(self._inline_ended_s if inline else self._freed_s, batch.requests[0].entered_s)
        if inline:
            execution = execute(batch.function, batch.requests, self._clock)
            self._inline_ended_s = execution.ended_s
            self._slots.count_inline(batch, execution.ended_s - execution.started_s)
            self._record_start(batch)  # after the call, because nothing else runs during it
            self._complete(batch, execution, self._record_end(batch, execution))
        else:
            if self._admission is not None:
                self._admission.expect(batch.expected_s)
            self._slots.start(batch, now, self._ended)
            batch.calls_beside = self._slots.calls
            self._record_start(batch)  # only now: a device that takes no work raises
        return inline

    def _ended(self, batch: BatchInFlight, execution: Execution) -> None:
        self._freed_s = execution.ended_s
        isolated = self._record_end(batch, execution)
        if self._flows and batch.feeds:  # its answers are the work that the device gets next
            self._complete(batch, execution, isolated)
            self._dispatch()
        else:
            self._dispatch()  # first: the device must not wait for the replies
            self._complete(batch, execution, isolated)

    def _complete(self, batch: BatchInFlight, execution: Execution, isolated: BatchInFlight | None) -> None:
        """Answers the batch, unless its requests are run again; with it the isolation of `isolated` is over."""
        if execution.rejection is None:
            if len(batch.requests) == 1 and isinstance(execution.outcomes[0], InvalidRequest):
                self._suspects.note(batch.requests[0].caller, execution.ended_s)
            self._completion.complete(batch, execution)
        else:
            self._tell_rejected(batch, execution)
            if batch.is_group:
                self._completion.forget(batch)
        self._end_isolation(isolated)

    def _tell_rejected(self, batch: BatchInFlight, execution: Execution) -> None:
        """Never raises: its requests are run again all the same."""
        seconds = execution.ended_s - execution.started_s
        try:
            self._listener(BatchRejected(*batch.key[:3], len(batch.requests), batch.rows, seconds))
        except Exception:
            logger.exception("A rejected batch could not be counted: %r", batch)

    def _end_isolation(self, isolated: BatchInFlight | None) -> None:
        if isolated is not None:
            self._completion.forget(isolated)

    def _record_start(self, batch: BatchInFlight) -> None:
        self._scheduler.record_start(batch)
        self._completion.record_start(batch, self._isolations.part_of(batch))

    def _record_end(self, batch: BatchInFlight, execution: Execution) -> BatchInFlight | None:
        """Returns the batch whose isolation is over with this one."""
        self._learn(batch, execution)
        if execution.rejection is not None:
            self._take_apart(batch)
        elif not self._isolations:
            return None
        return self._isolations.record_end(batch, execution, self._clock())

    def _take_apart(self, batch: BatchInFlight) -> None:
        for request in batch.take_apart():
            self._watch_deadline(request)

    def _learn(self, batch: BatchInFlight, execution: Execution) -> None:
        """Never raises: what is learnt of a call must not keep its requests from being answered."""
        try:
            if execution.mismatch:
                batch.function.stop_batching(execution.mismatch)
            seconds = execution.ended_s - execution.started_s
            batch.record_latency(seconds, self._max_inline_s, execution.ended_s, succeeded=execution.succeeded)
            if self._admission is not None:
                self._admission.record(seconds, batch.requests[0], execution.ended_s)
            self._scheduler.record_end(batch, seconds)
            if self._drained is None:
                self._shadow.observe(batch, execution)
        except Exception:
            logger.exception("The costs of a call could not be recorded: %r", batch)

    def _has_waiting(self) -> bool:
        return self.queue.rows > 0

    def _has_lanes(self) -> bool:
        return bool(self.queue.lanes)

    def _shadow_ended(self) -> None:
        self._dispatch_soon()
        self._check_drained()

    # --- what can be seen of it ---

    def waiting(self) -> Mapping[str, tuple[int, float]]:
        """By model, of those for which requests wait: their rows, and the seconds that the oldest has waited."""
        return self.queue.waiting(self._clock())

    def busy_s(self) -> Mapping[tuple[str, str], float]:
        """Seconds in which calls kept devices busy, by device and model; they only grow while it is served."""
        return self._slots.busy_s()

    def slots(self) -> Mapping[str, tuple[int, int]]:
        """By device: how many calls it takes at a time, and how many more it could take now."""
        return self._slots.slots()

    # --- the end, and health ---

    def begin_drain(self) -> None:
        """Rejects new requests from now on; every request that waits is due."""
        if self._drained is None:
            self._drained = self._loop.create_future()
            self._dispatch_soon()
            self._check_drained()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no batch is in flight or being isolated. May be read from any thread."""
        return not (self.queue.rows or self._flows or self._isolations) and self._slots.idle

    @property
    def drained(self) -> bool:
        """Whether a drain has begun and everything accepted is answered."""
        return self._drained is not None and self._drained.done()

    async def drain(self) -> None:
        """Waits until every accepted request is answered."""
        self.begin_drain()
        assert self._drained is not None  # noqa: S101 - set by begin_drain
        await asyncio.shield(self._drained)

    def _check_drained(self) -> None:
        if self._drained is not None and self.idle and not self._drained.done():
            self._drained.set_result(None)

    def close(self) -> None:
        """Stops timers and devices. To be called after `drain`, or if waiting requests may be lost."""
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
        stranded, free = False, bool(self._slots.free) and not self._slots.awaited
        if free and self.queue.lanes:
            plan, _ = self._scheduler.first_due(self.queue, now)
            stranded = now - plan.due_s > stranded_after_s
        if free and self._isolations.waiting:
            stranded |= now - self._isolations.waiting_since_s > stranded_after_s
        if stranded:
            found.append(f"A batch is due for more than {stranded_after_s:g} s although a device is free")
        return found

    def __repr__(self) -> str:
        draining = "" if self._drained is None else ", drained" if self._drained.done() else ", draining"
        return f"<Batcher {self.queue!r}, {self._slots!r}{draining}>"
