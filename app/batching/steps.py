"""The batcher's interface to pipelines: a request of several steps waits several times, and is judged once.

Rules (tests/batching/test_steps.py)
- A step is an ordinary request. The first is judged for all; later steps are queued in any case, before requests that
  arrive afterwards.
- A batch that holds steps is answered before the device is given the next one: its answers bring the steps that follow.
- A later step of a request that is alone needs no place in the queue. If no other request came, it is computed in a
  turn of the event loop, if its call is known to be short (dispatch/standing_calls.py).
- From `begin_flow` to `end_flow` a drain waits for the request, also while none of its steps is here.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.batching.acceptance import Acceptance
from app.batching.costs.cost_model import Costs
from app.batching.deadlines import Expiry
from app.batching.dispatch.dispatch_loop import DispatchLoop
from app.batching.dispatch.executor import Executor
from app.batching.dispatch.standing_calls import StandingCalls
from app.batching.function import BatchFunction
from app.batching.request import LaneKey, LaterSteps, PendingRequest, RequestHandle
from app.batching.state import BatchingState
from app.batching.waiting.supplies import Supply
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.inference import Array
from app.core.reply import Answer


class Steps:
    """The batcher, as pipelines use it.

    Attributes:
        slot_count: the number of calls that there may be at a time.
        max_queue_rows: the number of rows that may wait.
        watch: answers a request that is not queued when its deadline comes, if it is not answered then.
    """

    def __init__(
        self,
        state: BatchingState,
        acceptance: Acceptance,
        dispatch: DispatchLoop,
        executor: Executor,
        standing: StandingCalls,
        *,
        expiry: Expiry,
    ) -> None:
        self.slot_count = state.slots.count
        self.max_queue_rows = state.queue.room.max_rows
        self._scheduler, self._supplies, self._drain = state.scheduler, state.supplies, state.drain
        self._clock = state.clock
        self._acceptance = acceptance
        self._dispatch = dispatch
        self._executor = executor
        self._standing = standing
        self.watch = expiry.watch

    # --- a request ---

    def check_flow(self, request: PendingRequest, needs: LaterSteps) -> None:
        """Judges a request that is not queued itself when it begins; its calls will be.

        Args:
            needs: all of its calls.

        Raises: as Batcher.submit.
        """
        try:
            self._acceptance.check_flow(request, needs, self._clock())
        except ServingError as error:
            self._acceptance.tell_rejected(error)
            raise

    def begin_flow(self) -> None:
        """Notes an accepted request: until `end_flow` the batcher is not idle."""
        self._drain.flows += 1

    def end_flow(self) -> None:
        self._drain.flows -= 1
        if not self._drain.flows:
            self._drain.check()

    # --- its steps ---

    def submit(
        self,
        key: LaneKey,
        function: BatchFunction,
        request: PendingRequest,
        later: LaterSteps | None = None,
        requests: int = 1,
    ) -> RequestHandle:
        """Batcher.submit for a step.

        Args:
            request: it enters its lane at `entered_s`, the arrival of the whole, and arrived now; or, if the step has
                left the queue since (`again`), when it was submitted first: then it keeps its place.
            later: the steps that follow, if this is a first step, which is judged for the whole. None for a step of a
                request that was admitted: it is queued in any case.
            requests: the number of requests that have this step together; if several, its reply is a CoalescedReply.

        Raises: as Batcher.submit, if this is a first step.
        """
        now = self._clock() if request.again else request.arrival_s
        request.feeds = True
        if requests > 1:
            request.coalesced_s = (request.arrival_s,) * requests
            request.accept_part = self._acceptance.accept_part
        if later is not None:
            try:
                return self._acceptance.accept(key, function, request, now, later)
            except ServingError as error:
                self._acceptance.tell_rejected(error, requests)
                raise
        request.later_step, request.supplied = True, self._supplies.asking
        return self._acceptance.add(key, function, request, now)

    # --- supplies, and calls without the queue ---

    def when_free(self, supply: Supply) -> None:
        """Calls `supply` once, when a device is free and before it gets a batch, which may hold the new requests."""
        self._supplies.waiting.append(supply)
        if not self._supplies.asking:  # else it would come back in each turn of the loop until what waits is due
            self._dispatch.soon()

    @property
    def computes_supplied(self) -> bool:
        """Whether the work that is being supplied is all the work there is: it may be computed at once."""
        return self._supplies.alone and self._executor.takes_at_once and not self._dispatch.expects_more

    @property
    def lone(self) -> bool:
        """Whether only one request is under way: its next step may be computed at once."""
        quiet = self._drain.flows == 1 and not self._supplies.waiting and self._executor.takes_at_once
        return quiet and not self._dispatch.expects_more

    def compute_alone(
        self, key: LaneKey, function: BatchFunction, inputs: Mapping[str, Array], rows: int, caller: str
    ) -> Answer | None:
        """The answer to a later step, while `lone`; None if it has to be submitted: its answer may prove something."""
        if function.first is not None or function.trial is not None:
            return None
        return self._standing.compute(key, function, inputs, rows, caller)

    def compute_supplied(
        self, key: LaneKey, function: BatchFunction, inputs: Mapping[str, Array], rows: int, caller: str
    ) -> Answer | None:
        """The answer to a step that is being supplied, while `computes_supplied`; None if it has to be submitted."""
        answer = self._standing.compute(key, function, inputs, rows, caller)
        if answer is not None:
            self._supplies.alone = False
        return answer

    def full_call_rows(self, model: str, costs: Costs | None, max_rows: int) -> int:
        """The rows of the model's next full batch, at most `max_rows`; larger requests leave the queue in parts."""
        return self._scheduler.next_full_batch(model, costs or Costs(BatchSizes((max_rows,))), max_rows)
