"""The batcher: the batching core as models and the server call it. It makes and connects the parts.

The life of a request: `submit` has it accepted (acceptance.py). When a device is free, the dispatch loop puts it into a
batch (dispatch/dispatch_loop.py), the executor has the batch executed (dispatch/executor.py), and `Completion` answers
(dispatch/completion.py).

Rules
- Every decision is made in synchronous methods on the event loop. Only drain.py, deadlines.py and, in dispatch/,
  dispatch_loop.py and completion.py know the event loop; these, this file, steps.py and dispatch/executor.py read the
  clock.
- The caller owns its request: it cancels it on every way out, and then the request leaves the queue.
- A reply is set once, by the first of result, error and deadline, and never before `submit` has returned. Coalesced
  requests, and work that is supplied to a free device, may be computed at once: by a short call, if nothing
  else waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from app.batching.acceptance import Acceptance
from app.batching.batch import BatchInFlight
from app.batching.deadlines import Expiry
from app.batching.devices import Device
from app.batching.dispatch.completion import Completion
from app.batching.dispatch.dispatch_loop import DispatchLoop
from app.batching.dispatch.executor import Executor
from app.batching.dispatch.shadow_check import ShadowChecks
from app.batching.dispatch.spare_device import SpareDevice
from app.batching.dispatch.standing_calls import StandingCalls
from app.batching.dispatch.traffic_proof import TrafficProofs
from app.batching.function import BatchFunction
from app.batching.policy import BatchingPolicy
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.state import BatcherOptions, BatchingState
from app.batching.steps import Steps
from app.batching.waiting.lane import Lane
from app.core.burst import Burst
from app.core.errors import ServingError
from app.core.events import Listener, ignore
from app.core.interfaces import CoalescedHandle

logger = logging.getLogger(__name__)

Clock = Callable[[], float]


class Batcher:
    """The batching core, as models and the server use it: it runs queued requests in batches on free devices.

    Args:
        devices: each works on one batch at a time; list one twice for two batches in flight.
        policy: forms the batches of every model without a policy of its own (`tune`).
        clock: monotonic seconds, the same base as the event loop's timers.
        burst: the requests that have arrived and are about to be submitted; short calls wait for its end.

    Attributes:
        state: the state that its parts share.
        clock: as given; requests arrive by it.
        queue: the requests that wait.
        completion: answers batches, in order if the options say so.
        shadow: the shadow checks.
        steps: the interface to pipelines.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: BatchingPolicy,
        options: BatcherOptions,
        listener: Listener = ignore,
        clock: Clock = time.monotonic,
        *,
        burst: Burst | None = None,
    ) -> None:
        # 1. The queue, the scheduler and the devices.
        self.state = state = BatchingState(devices, policy, options, listener, clock)
        self.queue, self._scheduler, self.clock = state.queue, state.scheduler, clock

        #: The methods of the slots, as this class's.
        self.busy_s, self.slots = state.slots.busy_s, state.slots.slots

        # 2. How batches are executed and answered.
        self.completion = completion = Completion(listener, state.drain, in_order=options.preserve_order)
        self._expiry = Expiry(state, completion.on_cancel)
        self.shadow = ShadowChecks(SpareDevice(state.slots, state.has_waiting, clock), listener)
        self._traffic = TrafficProofs(SpareDevice(state.slots, state.is_busy, clock), listener)
        self._executor = Executor(state, completion, self._expiry, self.shadow, self._traffic)

        # 3. When they are started.
        self._dispatch = DispatchLoop(state, self._executor, completion, self._expiry, burst or Burst(clock))

        # 4. How requests come.
        self._acceptance = Acceptance(state, completion, self._expiry, self._dispatch)
        standing = StandingCalls(state, self._executor, self.shadow)
        self.steps = Steps(state, self._acceptance, self._dispatch, self._executor, standing, expiry=self._expiry)

    # --- requests ---

    def submit(self, key: LaneKey, function: BatchFunction, request: PendingRequest) -> RequestHandle:
        """Queues a request that arrives now, and returns at once.

        Args:
            request: its reply is set once, on the event loop, to an Answer or a ServingError. If `function` is not
                batchable, its inputs may have any shape, and it counts as one row.

        Raises:
            Overloaded: the queue is full, or the request cannot finish in time (admission.py says how that is
                estimated). Nothing was queued.
            ShuttingDown, DeadlineExceeded: nothing was queued.
        """
        try:
            return self._acceptance.accept(key, function, request, request.arrival_s)
        except ServingError as error:
            self._acceptance.tell_rejected(error)
            raise

    def coalescable_rows(self, model: str, function: BatchFunction) -> int:
        """The rows of requests that arrive together and are best submitted as one; 0 if a row takes long.

        As with batches, one of many tries the next larger size.
        """
        costs = function.last_costs
        if costs is None or not function.coalescable or not costs.is_quick(1, self._executor.max_inline_s):
            return 0
        return self._scheduler.next_full_batch(model, costs, function.max_rows)

    def submit_coalesced(
        self, key: LaneKey, function: BatchFunction, request: PendingRequest
    ) -> CoalescedHandle | None:
        """Takes requests that arrived in the same turn of the event loop as one request, which has `coalesced_s`.

        It is computed now, before this returns, if that is quick and no request waits; otherwise it is queued. Returns
        None if each request has to be submitted by itself, because they find no room together, are ragged, or have no
        time left. If the model rejects them, each is run again and answered as if it had been submitted alone.
        """
        # 1. May they share a call, and have they time?
        lane = Lane(key, function)
        if not (function.coalescable and 0 < request.rows <= lane.max_rows):
            return None
        batch = BatchInFlight(lane, [request], "idle")
        now = self.clock()
        if request.deadline_s <= now:  # each is told so
            return None
        executor = self._executor

        # 2. They are queued as one, unless they can be computed here and now.
        try:
            if not (executor.takes_at_once and batch.is_quick(executor.max_inline_s)):
                full = self._scheduler.next_full_batch(key.model, lane.costs, lane.max_rows)
                return self._acceptance.accept(key, function, request, now) if request.rows <= full else None
        except ServingError:  # a single one may find room, and in time
            return None
        executor.compute_unqueued(batch, now)
        if self.state.isolations.waiting:
            self._dispatch.soon()
        return RequestHandle(request, self._acceptance.cancel)

    # --- models ---

    def tune(self, model: str, policy: BatchingPolicy, weight: float = 0.0) -> None:
        """Sets policy and weight (0 for none) of all versions of a model, from the next batch on."""
        self._scheduler.tune(model, policy, weight)
        self.queue.room.set_weight(model, weight)
        self.queue.replan()
        self._dispatch.soon()

    def add_version(self, model: str) -> None:
        """A version of the model is served from now on: room in the queue is kept for it."""
        self.queue.room.add_version(model)
        self.state.slots.model_came(model)

    def remove_version(self, model: str) -> None:
        """A version that was added is not served any more."""
        self.queue.room.remove_version(model)
        if not self.queue.room.serves(model):
            self.state.slots.model_went(model)

    # --- its state, for pages and metrics ---

    def waiting(self) -> Mapping[str, tuple[int, float]]:
        """The rows that wait, and the seconds that the oldest request has waited, by model with waiting requests."""
        return self.queue.waiting(self.clock())

    def failures(self, stranded_after_s: float) -> list[str]:
        """The parts that are dead or stuck, a sentence each; empty while all is well."""
        now = self.clock()
        found = self.state.slots.failures(now)
        if self.state.failure:
            found.append(self.state.failure)
        if self._dispatch.is_stranded(now, stranded_after_s):
            found.append(f"A batch is due for more than {stranded_after_s:g} s although a device is free")
        return found

    # --- shadow checks, and trials with rows of requests ---

    @property
    def kept_row_bytes(self) -> int:
        """The bytes of kept requests, whose rows are to prove that they may share calls."""
        return self._traffic.bytes

    # --- the end ---

    @property
    def idle(self) -> bool:
        """Whether no request waits, and no batch is in flight or isolated. May be read from any thread."""
        return self.state.drain.idle

    def begin_drain(self) -> None:
        """Rejects new requests from now on; every waiting request is due."""
        if not self.state.drain.begun:
            self.state.drain.begun = True
            self._dispatch.soon()
            self.state.drain.check()

    @property
    def drained(self) -> bool:
        """Whether a drain has begun and every accepted request is answered."""
        return self.state.drain.over

    async def drain(self) -> None:
        """Waits until every accepted request is answered."""
        self.begin_drain()
        await self.state.drain.wait()

    def close(self) -> None:
        """Stops timers and devices. To be called after `drain`, or if waiting requests may be lost."""
        self._dispatch.close()
        self._expiry.close()
        self.state.slots.close()

    def __repr__(self) -> str:
        draining = ", drained" if self.state.drain.over else ", draining" if self.state.drain.begun else ""
        return f"<Batcher {self.queue!r}, {self.state.slots!r}{draining}>"
