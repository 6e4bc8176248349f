"""The step with `fold` of a pipeline: the nodes of all requests there, and the calls that compute them.

Ready nodes stand here, not in the queue. When a device is free the batcher asks for them, and as many as a call takes
become one request in the lane of their model, beside direct requests and those of other pipelines. The answer is
written into the arena, and more nodes become ready.

Rules
- The work for a call is done over all its nodes at once, whatever their requests.
- A call that is rejected because of its input, or for which there is no memory, is halved, by requests. Nothing of it
  was written, so no node is computed twice. A request whose nodes alone are rejected fails, and no other request does.
- Where rows must not meet (placement.py says which) each node is a call of its own.
- A request that ends takes its nodes out, also of a call that still waits. A call with such nodes alone is given up,
  wherever it is.
- A reply may submit and cancel requests. So code after a reply looks again which requests are living (`_living`).
- fold_costs.py chooses the place of a call in the queue.
- A call that is not full stands behind the first steps of requests that have arrived and come to this step: they bring
  it nodes. It waits for no later requests, so it is not put off again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory, ServingError
from app.core.inference import Array, BatchTiming, InferenceRequest
from app.core.reply import Answer
from app.model import Model
from app.pipelines.fold.agenda import Agenda, TakenNodes, halves, part_of
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.fold_costs import FoldCosts
from app.pipelines.fold.forest import distinct
from app.pipelines.fold.forests import ForestInputs
from app.pipelines.fold.gathers import Reads, Results
from app.pipelines.fold.reservations import Reservations
from app.pipelines.fold_call import FoldCall, call_error
from app.pipelines.fold_request import FoldRequest
from app.pipelines.plan import FoldPlan

logger = logging.getLogger(__name__)

#: Bytes of the agenda for a node beside its children: four numbers, and a key while it is ready.
_NODE_BYTES = 48

_NO_ROWS = np.empty(0, np.intp)

#: The slots of the nodes that the limit is meant for: the event loop's time for trees grows with nodes times slots.
_BINARY = 2


@dataclass(frozen=True, slots=True)
class FoldLimits:
    """The limits of a fold.

    nodes: the most nodes of a request, with two slots or fewer; with more slots as many fewer, for as many slots.
    bytes: the most bytes for the nodes of all requests.
    """

    nodes: int
    bytes: int


class Fold:
    """One step with `fold`. All methods are called on the event loop.

    The life of a request: `reserve` gives it room, and it is coming until the steps before this one are over; `begin`
    makes its nodes ready to be taken; when all nodes are computed it is answered. A request that ends earlier is
    leaving until none of its nodes is in a call any more.

    Args:
        models: by operation.
        when_free: calls its argument once, as soon as a device is free.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        plan: FoldPlan,
        models: Sequence[Model],
        when_free: Callable[[Callable[[], None]], None],
        limits: FoldLimits,
        clock: Callable[[], float],
    ) -> None:
        self.plan = plan
        self._models = models
        self._when_free = when_free
        self._clock = clock

        # Of all nodes
        row_bytes = sum(np.prod(shape, dtype=int) * dtype.itemsize for shape, dtype in plan.arrays.values())
        node_bytes = _NODE_BYTES + 8 * plan.rules.slots
        self._arena = Arena(plan.arrays, limits.bytes // int(row_bytes + node_bytes), limits.bytes)
        self._agenda = Agenda(
            plan.rules.slots, len(plan.operations), most_rows=max([each.sizes.largest for each in models])
        )
        self._costs = FoldCosts()
        most_nodes = min(_BINARY * limits.nodes // max(_BINARY, plan.rules.slots), self._arena.most_rows)
        self._reservations = Reservations(
            replace(plan.rules, most_nodes=most_nodes),
            [operation.slots for operation in plan.operations],
            self._agenda,
            self._arena,
            self._costs,
        )
        self._reads = [Reads(operation.nodes, operation.children, operation.slots) for operation in plan.operations]
        self._results = Results(plan.outputs)

        # By request
        self._coming: dict[FoldRequest, float] = {}  # with their arrivals, the newest last
        self._begun: dict[int, FoldRequest] = {}
        self._given: dict[FoldRequest, tuple[Mapping[str, Array], Mapping[str, Array]]] = {}  # not written yet
        self._leaving: dict[int, FoldRequest] = {}

        # By call
        self._calls: dict[FoldCall, None] = {}
        self._full = [0] * len(models)  # by operation, the rows of a full call at the last supply
        self._offered = False

    @property
    def taken(self) -> int:
        """The number of nodes with room in the arena, of all requests."""
        return self._arena.taken

    @property
    def idle(self) -> bool:
        """Whether the fold holds nothing of any request."""
        return not (self.taken or len(self._agenda) or self._begun or self._leaving or self._calls)

    # --- requests ---

    def reserve(
        self, asked: Sequence[ForestInputs], arrivals_s: Sequence[float]
    ) -> Sequence[FoldRequest | ServingError]:
        """Check the trees of requests, and reserve room for them; a rejected request gets an error (reservations.py).

        The caller calls `cancel` of every FoldRequest that it gets, on every way out.

        Args:
            arrivals_s: the arrival of each request, monotonic seconds.
        """
        found = [
            reserved if isinstance(reserved, ServingError) else FoldRequest(self, reserved)
            for reserved in self._reservations.reserve(asked)
        ]
        for request, arrival_s in zip(found, arrivals_s, strict=True):
            if isinstance(request, FoldRequest):
                self._coming[request] = arrival_s
        return found

    def begin(self, request: FoldRequest, start: Mapping[str, Array], nodes: Mapping[str, Array]) -> None:
        """See FoldRequest.begin."""
        # 1. Its states are written with those of others, before the next call.
        self._coming.pop(request, None)
        self._arena.check(request.starts, start)
        self._arena.check(request.nodes - request.starts, nodes)
        self._given[request] = start, nodes

        # 2. Without inner nodes it is answered at once.
        number = request.number
        if number is None:
            self._write_given()
            self._answer([request], [BatchTiming()])
            return

        # 3. Its nodes are ready to be taken.
        offset_s, first = request.pending.priority_offset_s, not self._begun
        now = self._clock()
        self._costs.begin(number, request.levels, request.nodes, request.entered_s, offset_s, now, first=first)
        self._begun[number] = request
        self._agenda.begin(number)
        self._offer()

    def _write_given(self) -> None:
        """Write the states of requests that have begun since the last time; never raises."""
        given, self._given = self._given, {}
        try:
            self._write(self.plan.start, [(each.rows[: each.starts], start) for each, (start, _) in given.items()])
            self._write(self.plan.nodes, [(each.rows[each.starts :], nodes) for each, (_, nodes) in given.items()])
        except Exception as raised:
            error = call_error(raised)
            for request in given:
                request.cancel()
            for request in given:
                request.pending.fail(copy(error))

    def _write(self, keys: Collection[str], given: Sequence[tuple[Array, Mapping[str, Array]]]) -> None:
        """Write states of requests. `given`: the rows of each request, and their values by key."""
        if keys:
            states = {key: np.concatenate([own[key] for _, own in given]) for key in keys}
            self._arena.scatter(np.concatenate([rows for rows, _ in given]), states)

    def end(self, request: FoldRequest) -> None:
        """See FoldRequest.cancel."""
        # 1. Without inner nodes, or when all are computed, only the rows are left.
        self._coming.pop(request, None)
        self._given.pop(request, None)
        number = request.number
        if number is None:
            self._arena.free(request.rows)
            return

        # 2. Its nodes leave the calls that still wait.
        self._begun.pop(number, None)
        self._leaving[number] = request
        for call in [each for each in self._calls if np.count_nonzero(each.taken.requests == number)]:
            if call.handle is not None and (call.handle.withdraw() or not self._living_numbers(call.taken)):
                call.give_up()
                del self._calls[call]
                self._put_back(call.taken)

        # 3. Its rows are free now, or when its last node returns from a call.
        if self._agenda.cancel(number):
            self._free((number,))
        self._offer()

    def _free(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._arena.free(self._leaving.pop(number).rows)

    # --- calls ---

    def _offer(self) -> None:
        if not self._offered and self._agenda.has_ready:
            self._offered = True
            self._when_free(self._supply)

    def _supply(self) -> None:
        """Put ready nodes into the queue: of each operation no more than a call takes."""
        self._offered = False
        if self._given:
            self._write_given()
        waiting = [0] * len(self._models)
        for call in self._calls:
            waiting[call.operation] += call.waiting_nodes
        for operation, model in enumerate(self._models):
            count = self._agenda.ready(operation)
            if count:
                self._full[operation] = full = model.call_rows(self.plan.operations[operation].signature)
                count = min(count, full - waiting[operation])
            if count > 0:
                self._submit(operation, self._agenda.take(count, operation))
        self._offer()

    def _submit(self, operation: int, taken: TakenNodes) -> None:
        """Make a call, or queue it; a node that must not meet others becomes a call of its own."""
        call, plan, model = FoldCall(self, operation, taken), self.plan.operations[operation], self._models[operation]
        self._calls[call] = None
        try:
            inputs = self._reads[operation].inputs(self._arena, taken)
            lone = model.lone_rows(plan.signature, inputs) if len(taken.rows) > 1 else None
            answer = self._ask(call, inputs) if lone is None else None
        except Exception as raised:
            self.lost(call, call_error(raised))
            return
        if answer is not None:
            self.computed(call, answer)
        if lone is None:
            return

        # One call of the nodes that may meet, and one for each other node.
        del self._calls[call]
        for each in (~lone, *np.eye(len(lone), dtype=bool)[lone]):
            if (left := self._living(part_of(taken, each))).rows.size:
                self._submit(operation, left)

    def _ask(self, call: FoldCall, inputs: dict[str, Array]) -> Answer | None:
        """The answer to a call that can be made at once; None for a call that is queued.

        It waits at the place of its first request, or behind requests that are coming.
        """
        # 1. The request of the call. It has a caller if all its nodes are of one request.
        requests, operation, model = call.taken.requests, call.operation, self._models[call.operation]
        number = int(requests[0])
        first = self._begun[number]
        caller = first.pending.caller
        if caller and np.count_nonzero(requests == number) < len(requests):
            caller = ""
        signature = self.plan.operations[operation].signature
        asked = InferenceRequest(inputs, signature, (), inf, first.priority, caller)
        if (answer := model.compute_supplied(asked)) is not None:
            return answer

        # 2. Its place in the queue.
        if len(self._begun) > 1:
            number = self._costs.first_of(requests)
            asked.priority = self._begun[number].priority
        entered_s = self._costs.entered_s(number)
        if self._coming and len(requests) < self._full[operation]:
            entered_s = max(entered_s, next(reversed(self._coming.values())))
        call.handle = model.submit_step(asked, call, entered_s)
        return None

    def computed(self, call: FoldCall, answer: Answer) -> None:
        """Write the states of a call's nodes, and answer the requests that are complete."""
        # 1. The states.
        taken, timing = call.taken, answer.timing
        results = self.plan.operations[call.operation].results
        try:
            self._arena.scatter(taken.rows, {key: answer.outputs[name] for key, name in results.items()})
        except InferenceFailed as error:
            self.lost(call, error)
            return

        # 2. The nodes are done; more may be ready.
        del self._calls[call]
        self._costs.charge(taken.requests, timing, self._clock())
        returned = self._agenda.done(taken.rows)
        self._free(returned.gone)
        complete = [self._begun.pop(number) for number in returned.complete]

        # 3. The answers, last: replies may submit and cancel requests.
        timings = self._costs.timings(returned.complete)
        for request in complete:
            request.number = None
        self._offer()
        if complete:
            self._answer(complete, timings)

    def _answer(self, requests: Sequence[FoldRequest], timings: Sequence[BatchTiming]) -> None:
        """Answer requests whose nodes are all computed, and which are no longer in the agenda."""
        answers: Sequence[dict[str, Array] | ServingError]
        try:
            rows = [(each.roots, each.rows[each.starts :]) for each in requests]
            answers = self._results.of(self._arena, rows)
        except Exception as raised:
            error = call_error(raised)
            answers = [copy(error) for _ in requests]
        own_rows = [request.rows for request in requests]
        self._arena.free(own_rows[0] if len(own_rows) == 1 else np.concatenate(own_rows))
        for request in requests:
            request.rows = _NO_ROWS
        for request, answer, timing in zip(requests, answers, timings, strict=True):
            if request.over:  # the answer to another request ended it
                continue
            request.over = True
            if isinstance(answer, ServingError):
                request.pending.fail(answer)
            else:
                request.pending.answer(Answer(answer, timing))

    def lost(self, call: FoldCall, error: Exception) -> None:
        """Halve a failed call, or fail its requests."""
        # 1. Smaller calls: the living nodes alone if a request has ended, which may have been at fault; else halves.
        self._calls.pop(call, None)
        taken = self._living(call.taken)
        smaller: Sequence[TakenNodes] = ()
        if isinstance(error, InvalidRequest | OutOfMemory):
            smaller = halves(taken, by_nodes=isinstance(error, OutOfMemory)) if taken is call.taken else (taken,)
        for part in smaller:
            if (left := self._living(part)).rows.size:
                self._submit(call.operation, left)
        if smaller:
            return

        # 2. The requests fail.
        failed = [self._begun[number] for number in distinct(taken.requests).tolist()]
        self._put_back(taken)
        for request in failed:
            request.cancel()
        self._offer()
        for request in failed:
            request.pending.fail(copy(error))

    def _living(self, taken: TakenNodes) -> TakenNodes:
        """The nodes of living requests; the others are put back."""
        numbers = self._living_numbers(taken)
        living = np.isin(taken.requests, numbers)
        if living.all():
            return taken
        self._put_back(part_of(taken, ~living))
        return part_of(taken, living)

    def _living_numbers(self, taken: TakenNodes) -> Sequence[int]:
        return [number for number in distinct(taken.requests).tolist() if number in self._begun]

    def _put_back(self, taken: TakenNodes) -> None:
        if taken.rows.size:
            self._free(self._agenda.put_back(taken.rows).gone)

    def __repr__(self) -> str:
        return f"<Fold of {len(self._begun)} requests, {len(self._calls)} calls: {self._agenda!r}>"
