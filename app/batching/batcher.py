"""The batcher: what models and the server call of the batching core. It makes and connects the parts.

The life of a request: `submit` has it accepted (acceptance.py) -> the dispatch loop puts it into a batch at the moment
in which a free device takes that (dispatch/dispatch_loop.py) -> the executor has the batch executed
(dispatch/executor.py) -> `Completion` answers (dispatch/completion.py).

Rules
- Every decision is made in synchronous methods on the event loop. Only drain.py, deadlines.py and, in dispatch/,
  dispatch_loop.py and completion.py know the event loop; these, this file, steps.py and dispatch/executor.py read the
  clock.
- The caller owns its request: it cancels it on every way out, and then the request leaves the queue.
- A reply is set once, by the first of result, error and deadline, and never before `submit` has returned. What is
  submitted together, or supplied to a free device, may be computed at once: a short call for which nothing else waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType

from app.batching.acceptance import Acceptance
from app.batching.admission import Admission
from app.batching.batch import BatchInFlight
from app.batching.deadlines import Deadlines, Expiry
from app.batching.devices import Device, DeviceSlots
from app.batching.dispatch.completion import Completion
from app.batching.dispatch.dispatch_loop import DispatchLoop
from app.batching.dispatch.executor import Executor
from app.batching.dispatch.shadow_check import ShadowChecks
from app.batching.dispatch.spare_device import SpareDevice
from app.batching.dispatch.standing_calls import StandingCalls
from app.batching.dispatch.traffic_proof import TrafficProofs
from app.batching.drain import Drain
from app.batching.function import BatchFunction
from app.batching.isolation import Isolations, Suspects
from app.batching.policy import BatchingPolicy
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.scheduler import Scheduler
from app.batching.steps import Steps
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from app.batching.waiting.supplies import Supplies
from app.core.burst import Burst
from app.core.errors import ServingError
from app.core.events import Listener, ignore
from app.core.inference import Array
from app.core.interfaces import CoalescedHandle
from app.core.reply import CoalescedReply, Reply

logger = logging.getLogger(__name__)

Clock = Callable[[], float]


class Batcher:
    """Queues requests in order of arrival and runs them in batches on free devices. Made on the event loop.

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

    Attributes:
        queue: what waits.
        steps: what pipelines ask.
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
        self._clock = clock
        self._failure = ""

        # What waits, and what is in flight
        callers = Callers(caller_weights) if fair_callers else None
        self._scheduler = Scheduler(policy, weights, callers, self._note_failure)
        self.queue = RequestQueue(
            max_queue_rows,
            self._scheduler.most_rows,
            weights,
            callers=callers,
            max_bytes=max_queue_bytes,
            divided=lambda request: self._acceptance.divided(request),  # noqa: PLW0108 - it is made below
        )
        self._slots = DeviceSlots(devices, clock)
        self._isolations = Isolations(self.queue.take_room, self.queue.give_back)
        parts = self.queue, self._slots, self._scheduler, self._isolations

        # How batches are executed and answered
        self._drain = Drain(self.queue, self._slots, self._isolations)
        self._completion = Completion(listener, self._drain.check, in_order=preserve_order)
        self._expiry = Expiry(Deadlines(), self.queue, clock, self._completion.on_cancel, listener)
        self._shadow = ShadowChecks(SpareDevice(self._slots, self._has_waiting, self._spare_ended, clock), listener)
        self._traffic = TrafficProofs(SpareDevice(self._slots, self._is_busy, self._spare_ended, clock), listener)
        self._admission = Admission(*parts, clock) if admission else None
        suspects = Suspects()
        self._executor = Executor(
            *parts,
            completion=self._completion,
            expiry=self._expiry,
            drain=self._drain,
            admission=self._admission,
            suspects=suspects,
            shadow=self._shadow,
            traffic=self._traffic,
            listener=listener,
            clock=clock,
            max_inline_s=max_inline_s,
        )

        standing = StandingCalls(
            self._slots,
            self._scheduler,
            self._admission,
            self._shadow,
            listener=listener,
            clock=clock,
            max_inline_s=max_inline_s,
        )

        # When they are started
        supplies = Supplies(self._note_failure)
        self._dispatch = DispatchLoop(
            *parts,
            executor=self._executor,
            completion=self._completion,
            expiry=self._expiry,
            supplies=supplies,
            burst=burst or Burst(clock),
            drain=self._drain,
            failed=self._note_failure,
            clock=clock,
        )

        # How requests come
        self._acceptance = Acceptance(
            self.queue,
            admission=self._admission,
            suspects=suspects,
            drain=self._drain,
            expiry=self._expiry,
            completion=self._completion,
            dispatch=self._dispatch,
            listener=listener,
        )
        self.steps = Steps(
            self.queue,
            self._slots,
            self._scheduler,
            acceptance=self._acceptance,
            dispatch=self._dispatch,
            executor=self._executor,
            standing=standing,
            supplies=supplies,
            expiry=self._expiry,
            drain=self._drain,
            clock=clock,
        )

    # --- requests ---

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
            return self._acceptance.accept(
                key, function, PendingRequest(inputs, rows, reply, now, deadline_s, priority_offset_s, caller), now
            )
        except ServingError as error:
            self._acceptance.tell_rejected(error)
            raise

    def coalescable_rows(self, model: str, function: BatchFunction) -> int:
        """How many rows of requests that arrive together are best submitted as one; 0 if a row takes long.

        As a batch, one of many tries the next larger size.
        """
        costs = function.last_costs
        if costs is None or not function.coalescable or not costs.is_quick(1, self._executor.max_inline_s):
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
        executor = self._executor
        try:
            if not (executor.takes_at_once and batch.is_quick(executor.max_inline_s)):
                full = self._scheduler.next_full_batch(key.model, lane.costs, lane.max_rows)
                return self._acceptance.accept(key, function, request, now) if rows <= full else None
        except ServingError:  # a single one may find room, and in time
            return None
        executor.compute_unqueued(batch, now)
        if self._isolations.waiting:
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
        self._slots.model_came(model)

    def remove_version(self, model: str) -> None:
        """A version that was added is not served any more."""
        self.queue.room.remove_version(model)
        if not self.queue.room.serves(model):
            self._slots.model_went(model)

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

    def failures(self, stranded_after_s: float) -> list[str]:
        """What is dead or stuck; empty while all is well."""
        now = self._clock()
        found = self._slots.failures(now)
        if self._failure:
            found.append(self._failure)
        if self._dispatch.is_stranded(now, stranded_after_s):
            found.append(f"A batch is due for more than {stranded_after_s:g} s although a device is free")
        return found

    def _note_failure(self, what: str, error: Exception) -> None:
        """It must not go unnoticed: /livez turns red."""
        logger.exception(what)
        self._failure = f"The batcher failed: {error!r}"

    # --- shadow checks, and trials with rows of requests ---

    @property
    def kept_row_bytes(self) -> int:
        """What is kept of requests whose rows are to prove that they may share calls."""
        return self._traffic.bytes

    def _has_waiting(self) -> bool:
        return self.queue.rows > 0

    def _is_busy(self) -> bool:
        return self._has_waiting() or self._drain.begun

    def _spare_ended(self) -> None:
        self._dispatch.soon()
        self._drain.check()

    # --- the end ---

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no batch is in flight or being isolated. May be read from any thread."""
        return self._drain.idle

    def begin_drain(self) -> None:
        """Rejects new requests from now on; every request that waits is due."""
        if not self._drain.begun:
            self._drain.begun = True
            self._dispatch.soon()
            self._drain.check()

    @property
    def drained(self) -> bool:
        """Whether a drain has begun and everything accepted is answered."""
        return self._drain.over

    async def drain(self) -> None:
        """Waits until every accepted request is answered."""
        self.begin_drain()
        await self._drain.wait()

    def close(self) -> None:
        """Stops timers and devices. To be called after `drain`, or if waiting requests may be lost."""
        self._dispatch.close()
        self._expiry.close()
        self._slots.close()

    def __repr__(self) -> str:
        draining = ", drained" if self._drain.over else ", draining" if self._drain.begun else ""
        return f"<Batcher {self.queue!r}, {self._slots!r}{draining}>"
