"""A flow: one request on its way through the steps of a pipeline, or several that arrived together (arrivals.py).

Everything here runs on the event loop, in calls of replies: there is no task and no future for a step.

Rules
1. A flow keeps the models that it began with (binding.py).
2. It is judged once, at its first steps. The others are queued in any case, behind the first steps of requests that
   have come by then, so that they share calls with theirs, and before whoever comes afterwards (measured: images of
   mixed sizes had 4 rows in a call of the net, and now have 64).
3. It is answered once. When it is answered, has failed or is cancelled, all its steps are cancelled.
4. Tensors are passed on as they are, if all rows go the same way.
5. Several are one flow as long as they go the same way: there is one step at a time (Plan.sequential), and each of them
   has rows in it. Who has none goes on without those who have, and is answered as soon as if it were alone. Who has
   left is left out of the next step, and out of one that still waits. Where a call is rejected, each goes on alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from app.batching.priority import priority_offset_s
from app.batching.request import LaterSteps, PendingRequest, RequestHandle
from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory, ServingError
from app.core.events import PipelineEnded, StepEnded
from app.core.inference import NO_TIME, Array, BatchTiming, InferenceRequest, StepTiming
from app.core.reply import Answer, CoalescedReply, Reply
from app.pipelines.members import Member, Together
from app.pipelines.plan import INPUT, FoldPlan, Gather, StepPlan, Value
from app.pipelines.rows import NO_ROWS, Rows, intersection, join, pick, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.pipelines.binding import Binding
    from app.pipelines.folding import FoldRequest

logger = logging.getLogger(__name__)


class Flow:
    """The Cancellable of its requests.

    Args:
        request: of several the rows of all.
        counts: the rows of the request, by kind; -1 where folds say it.
        reply: of several a CoalescedReply.
        arrival_s: of the first of them, monotonic seconds.

    Attributes:
        members: if they are several.
    """

    __slots__ = (
        "_admitted", "_arrays", "_arrival_s", "_binding", "_counts", "_failed", "_folds", "_handles", "_left",
        "_missing", "_needed", "_place_s", "_reply", "_request", "_rows", "_timings", "members", "over",
    )  # fmt: skip

    def __init__(
        self, binding: Binding, request: InferenceRequest, counts: list[int], reply: Reply, arrival_s: float
    ) -> None:
        plan = binding.plan
        self.over = False
        self._binding = binding
        self._request = request
        self._counts = counts
        self._reply = reply
        self.members: Sequence[Member] = ()
        self._arrival_s = self._place_s = arrival_s
        self._admitted = False
        self._needed = plan.needed(request.outputs)
        self._left = len(self._needed)
        self._missing = [len(step.needs) for step in plan.steps]
        self._arrays: list[Array | None] = [None] * plan.values
        for name, value in plan.inputs.items():
            self._arrays[value.number] = request.inputs.get(name)
        self._rows: list[Rows] = [None] * len(plan.steps)
        self._handles: dict[int, RequestHandle] = {}
        self._folds: dict[int, FoldRequest] = {}
        self._timings: dict[int, StepTiming] = {}
        self._failed: tuple[int, ...] = ()

    @classmethod
    def of_several(
        cls,
        binding: Binding,
        request: InferenceRequest,
        members: Sequence[Member],
        arrival_s: float,
        reply: CoalescedReply | None = None,
    ) -> Flow:
        """One for several requests.

        Args:
            request: the rows of all, one after the other.
            reply: gets the answer to all of them, if their ways do not part; else each member gets its own.
        """
        flow = cls(binding, request, [sum([member.rows for member in members])], reply or Together(members), arrival_s)
        flow.members = members
        for member in members:
            member.flow = flow
        return flow

    def begin(self) -> None:
        """Submits the first steps. Raises what their models raise; nothing is queued then."""
        self._binding.begin_flow(self._arrival_s)
        try:
            if self._binding.folds:
                self._reserve()
            for step in self._binding.plan.steps:
                if not (step.needs or self.over) and step.number in self._needed:
                    self._start(step)
        except BaseException:
            if not self.over:
                self._end("" if self.members else "rejected")  # each of several may be accepted yet
            raise
        self._admitted = True
        self._finish_if_done()

    def cancel(self) -> None:
        """Gives up the answer; no step is computed that is not being computed yet."""
        if not self.over:
            self._end("cancelled")

    @property
    def unwanted(self) -> bool:
        """Whether it is over, or nobody waits for its answer any more."""
        return self.over or self._reply.done()

    def given_up(self) -> bool:
        """`unwanted`, asked by who drops its steps then. It ends soon if nobody has told it: what asks is at work."""
        if not self.over and self._reply.done():
            asyncio.get_running_loop().call_soon(self.cancel)
            return True
        return self.over

    # --- several requests ---

    def member_left(self) -> None:
        """A member waits no more: its rows leave a step that still waits, and come into no other one."""
        if self.over:
            return
        if not self.members or self._reply.done():
            self.cancel()
            return
        for number, handle in [*self._handles.items()]:
            if handle.withdraw():
                del self._handles[number]
                asyncio.get_running_loop().call_soon(self._guarded_start, self._binding.plan.steps[number], True)

    def apart(self) -> list[Flow]:
        """A flow for each member, which goes on from here; this one is over. No step is under way."""
        parts = [self._part([number]) for number in range(len(self.members))]
        self.over = True
        self._binding.end_flow()
        for part in parts:
            if part._reply.done():
                part.cancel()
        return parts

    def _part(self, kept: Sequence[int]) -> Flow:
        """A flow of some of its members, as it is now."""
        part = copy(self)
        part._missing, part._rows, part._arrays = self._missing.copy(), self._rows.copy(), self._arrays.copy()
        part._timings, part._handles = self._timings.copy(), {}
        part._keep(kept)
        self._binding.begin_flow(None)
        return part

    def _keep(self, kept: Sequence[int]) -> None:
        """From now on only these members are its own. No step is under way."""
        # 1. Their rows, and their new numbers.
        members = [self.members[number] for number in kept]
        stays = np.zeros(len(self.members), bool)
        stays[kept] = True
        of_kept = stays.repeat([member.rows for member in self.members])
        new_numbers = of_kept.cumsum() - 1

        # 2. What is known of them.
        steps, rows = self._binding.plan.steps, self._rows
        self._take_rows(self._binding.plan.inputs.values(), of_kept)
        for number, own in enumerate(rows):
            if own is None:
                self._take_rows(steps[number].outputs, of_kept)
            elif own.size:
                here = of_kept[own]
                self._take_rows(steps[number].outputs, here)
                rows[number] = new_numbers[own[here]]
        self._counts = [sum([member.rows for member in members])]

        # 3. Who they are.
        for member in members:
            member.flow = self
        self.members = members if len(members) > 1 else ()
        self._reply = Together(members) if len(members) > 1 else members[0]

    def _take_rows(self, values: Iterable[Value], taken: Array) -> None:
        for value in values:
            array = self._arrays[value.number]
            if array is not None:
                self._arrays[value.number] = array[taken]

    def _without_those_who_left(self) -> None:
        """They are over, and nothing more is computed for them. Somebody is left."""
        done = [member.done() for member in self.members]
        if any(done):
            self._part([number for number, each in enumerate(done) if each])._end("cancelled")
            self._keep([number for number, each in enumerate(done) if not each])

    def _only_those_with(self, step: StepPlan, rows: Array) -> Array:
        """Members that have none of these rows go on without the others. Returns the new numbers of the rows."""
        ends = np.cumsum([member.rows for member in self.members])
        having = np.zeros(len(self.members), bool)
        having[ends.searchsorted(rows, side="right")] = True
        if having.all():
            return rows
        of_having = having.repeat([member.rows for member in self.members])
        without = self._part(np.flatnonzero(~having).tolist())
        self._keep(np.flatnonzero(having).tolist())
        without._pass_over_guarded(step)
        return (of_having.cumsum() - 1)[rows]

    def rows_by_member(self, step: StepPlan, elements: int) -> Sequence[int]:
        """The rows of each member in the call of a step."""
        own, rows = [member.rows for member in self.members], self._rows[step.number]
        if rows is not None:
            of_member = np.cumsum(own).searchsorted(rows, side="right")
            own = np.bincount(of_member, minlength=len(own)).tolist()
        return [elements * count for count in own]

    def _each_alone(self, step: StepPlan) -> None:
        """Each member goes on alone, with this step."""
        for part in self.apart():
            part._guarded_start(step)

    # --- folds ---

    def _reserve(self) -> None:
        """Checks all trees, and keeps room for them, before anything is computed. It tells all numbers of rows."""
        binding, counts = self._binding, self._counts
        for step in binding.plan.steps:
            plan = step.fold
            if plan is None or step.number not in self._needed:
                continue
            children, types = [
                None if each is None else self._arrays[each.number] for each in (plan.children, plan.types)
            ]
            starts = 0 if plan.start_kind is None else counts[plan.start_kind]
            try:
                fold = binding.folds[step.number].reserve(
                    starts, counts[plan.node_kind], children, types, self._arrival_s
                )
            except ServingError as error:
                raise _at(step, error) from None
            self._folds[step.number] = fold
            roots = len(fold.roots)
            if counts[plan.root_kind] not in {-1, roots}:
                raise InvalidRequest(
                    f"Step {step.name!r}: there are {roots} trees; expected {counts[plan.root_kind]}, as there are "
                    "rows of other inputs that belong to them"
                )
            counts[plan.root_kind] = roots

    def _start_fold(self, step: StepPlan, plan: FoldPlan) -> None:
        fold, request, reply = self._folds[step.number], self._request, StepReply(self, step, 1)
        offset_s = priority_offset_s(request.priority) if request.priority else 0.0
        pending = PendingRequest(
            _NOTHING.inputs, fold.nodes, reply, self._arrival_s, request.deadline_s, offset_s, request.caller
        )
        if not self._admitted:
            models = [model.name for model in self._binding.models[step.number]]
            self._binding.batcher.check_flow(pending, models, lambda: self._later_s(None))
        start = {key: self._gathered(gather, None, step) for key, gather in plan.start.items()}
        nodes = {key: self._gathered(gather, None, step) for key, gather in plan.nodes.items()}
        fold.begun_s = self._binding.clock()
        entered_s = self._arrival_s + sum([each.compute_s for each in self._timings.values()])
        try:
            fold.begin(start, nodes, pending, entered_s, request.priority)
        except ServingError as error:
            self._failed += (step.number,)
            raise _at(step, error) from None
        self._binding.batcher.watch(pending)

    # --- steps ---

    def _start(self, step: StepPlan, again: bool = False) -> None:
        """Submits a step whose inputs are there, or passes over it if no rows are left for it.

        Args:
            again: it was submitted before, and keeps its place.
        """
        if step.fold is not None:
            self._start_fold(step, step.fold)
            return

        # 1. Who needs it, and for which rows.
        if self.members:
            self._without_those_who_left()
        rows = self._rows_of(step)
        if rows is not None and not rows.size and self._counts[step.kind]:
            self._pass_over(step)
            return
        if rows is not None and self.members:
            rows = self._only_those_with(step, rows)
        self._rows[step.number] = rows

        # 2. What the model gets.
        inputs, elements = self._inputs(step, rows)
        request = self._request
        deadline_s = request.deadline_s
        if step.timeout_s < inf:
            deadline_s = min(deadline_s, self._binding.clock() + step.timeout_s)
        asked = InferenceRequest(inputs, step.signature, (), deadline_s, request.priority, request.caller)
        if self._admitted and not again:
            self._place_s = self._binding.newest_s
        try:
            self._submit(step, asked, elements)
        except ServingError as error:
            self._rejected(step, error)

    def _submit(self, step: StepPlan, asked: InferenceRequest, elements: int) -> None:
        model, later = self._binding.models[step.number][0], None if self._admitted else self._later(step)
        if not self.members:
            reply = StepReply(self, step, elements)
            self._handles[step.number] = model.submit_step(asked, reply, self._place_s, later)
            return
        replies = StepReplies(self, step, elements)
        handle = model.submit_steps(asked, replies, self._place_s, later)
        if handle is None:
            raise _EachAlone
        self._handles[step.number] = handle

    def _rejected(self, step: StepPlan, error: ServingError) -> None:
        """A step could not be submitted. Raises it: of a first step, or if the flow fails by it."""
        if self.members and self._admitted:
            self._each_alone(step)
            return
        self._failed += (step.number,)
        if not step.optional or not self._admitted:
            raise _at(step, error) from None
        self._pass_over(step)

    def _rows_of(self, step: StepPlan) -> Rows:
        """The rows that a step computes."""
        gathers = [*step.inputs.values()]
        sets = [self._domain(gather) for gather in gathers]
        if step.condition is None:
            return intersection(sets)
        sets += [None if value.step == INPUT else self._rows[value.step] for value in step.conditional.values()]
        rows = intersection(sets)
        if rows is not None and not rows.size:
            return NO_ROWS
        read = {
            reference: self._gathered(Gather((value,)), rows, step) for reference, value in step.conditional.items()
        }
        holds = step.condition.holds(read)
        if holds.all():
            return rows
        return np.flatnonzero(holds) if rows is None else rows[holds]

    def _domain(self, gather: Gather) -> Rows:
        """The rows that have a value."""
        if gather.rest is not None:
            return None
        return union([None if value.step == INPUT else self._rows[value.step] for value in gather.values])

    def _inputs(self, step: StepPlan, rows: Rows) -> tuple[dict[str, Array], int]:
        """What the model gets, and how many elements each row has, if these are its rows."""
        inputs = {name: self._gathered(gather, rows, step) for name, gather in step.inputs.items()}
        if not step.each:
            return inputs, 1
        counts = {inputs[name].shape[1] for name, gather in step.inputs.items() if gather.spread}
        if len(counts) > 1:
            raise InferenceFailed(
                f"Step {step.name!r}: its inputs have different numbers of elements: {sorted(counts)}"
            )
        (count,) = counts
        for name, gather in step.inputs.items():
            array = inputs[name]
            inputs[name] = (
                array.reshape(len(array) * count, *array.shape[2:])
                if gather.spread
                else np.repeat(array, count, axis=0)
            )
        return inputs, count

    def _gathered(self, gather: Gather, rows: Rows, step: StepPlan | None, name: str = "") -> Array:
        if len(gather.values) == 1:
            (value,) = gather.values
            array = self._arrays[value.number]
            own = None if value.step == INPUT else self._rows[value.step]
            if array is not None and (gather.rest is None or own is rows):
                return pick(array, own, rows)
        parts = []
        for value in gather.values:
            array = self._arrays[value.number]
            if array is not None:
                parts.append((array, None if value.step == INPUT else self._rows[value.step]))
        spec = self._binding.spec_of(gather, step, name)
        return join(parts, gather.rest, rows, self._counts[gather.kind], spec)

    def _later(self, step: StepPlan) -> LaterSteps:
        calls = len(self._needed) - 1 + sum([fold.levels for fold in self._folds.values()])
        return LaterSteps(calls, self._binding.other_models[step.number], lambda: self._later_s(step))

    def _later_s(self, step: StepPlan | None) -> float:
        levels = {number: fold.levels for number, fold in self._folds.items()}
        return self._binding.later_s(step, self._counts, levels)

    # --- what becomes of them ---

    def answered(self, step: StepPlan, answer: Answer, elements: int) -> None:
        """To be called with the answer of a step; never raises."""
        self._handles.pop(step.number, None)
        queue_s, compute_s, most_rows, _ = answer.timing
        if step.fold is not None:  # it waited whenever none of its nodes was in a call
            queue_s = max(0.0, self._binding.clock() - self._folds[step.number].begun_s - compute_s)
        self._timings[step.number] = StepTiming(step.name, queue_s, compute_s, most_rows)
        rows = self._rows[step.number]
        count = self._counts[step.kind] if rows is None else rows.size
        for value in step.outputs:
            array = answer.outputs[value.name]
            self._arrays[value.number] = array.reshape(count, elements, *array.shape[1:]) if step.each else array
        self._guarded(step)

    def failed(self, step: StepPlan, error: Exception) -> None:
        """To be called with the error of a step; never raises."""
        self._handles.pop(step.number, None)
        if self.members and isinstance(error, InvalidRequest | OutOfMemory):  # one of them is to blame
            self._each_alone(step)
            return
        self._failed += (step.number,)
        if step.optional:
            self._rows[step.number] = NO_ROWS
            self._guarded(step)
        else:
            self._fail(_at(step, error) if isinstance(error, ServingError) else error)

    def _pass_over(self, step: StepPlan) -> None:
        self._rows[step.number] = NO_ROWS
        self._go_on(step)

    def _pass_over_guarded(self, step: StepPlan) -> None:
        self._rows[step.number] = NO_ROWS
        self._guarded(step)

    def _guarded_start(self, step: StepPlan, again: bool = False) -> None:
        if not self.unwanted:
            self._guarded(step, partial(self._start, step, again))

    def _guarded(self, step: StepPlan, then: Callable[[], None] | None = None) -> None:
        """Does what follows a step, or `then`; what goes wrong is the error of its requests."""
        try:
            if then is None:
                self._go_on(step)
            else:
                then()
            self._finish_if_done()
        except ServingError as error:
            self._fail(error)
        except Exception:
            logger.exception("Pipeline %s failed after step %r", self._binding.name, step.name)
            self._fail(InferenceFailed(f"The pipeline failed after step {step.name!r}"))

    def _go_on(self, step: StepPlan) -> None:
        """A step is over: those that waited for it alone begin."""
        self._left -= 1
        steps = self._binding.plan.steps
        for number in step.feeds:
            self._missing[number] -= 1
            if not self._missing[number] and number in self._needed and not self.unwanted:
                self._start(steps[number])

    def _finish_if_done(self) -> None:
        if self.unwanted:
            self.cancel()
        if self._left or self.over or not self._admitted:
            return
        if self.members:
            self._without_those_who_left()
        plan, wanted = self._binding.plan, self._request.outputs
        outputs = {
            name: self._gathered(gather, None, None, name)
            for name, gather in plan.outputs.items()
            if not wanted or name in wanted
        }
        timing, overhead_s = self._timing()
        answer, reply = Answer(outputs, timing), self._reply
        self._end("answered", timing, overhead_s)
        reply.set_result(answer)

    def _timing(self) -> tuple[BatchTiming, float]:
        """Computed is what the longest way took, and the rest of the time it waited; in part for no step: overhead."""
        steps, timings = self._binding.plan.steps, self._timings
        computed, busy = [0.0] * len(steps), [0.0] * len(steps)
        for step in steps:
            number, compute_s, busy_s = step.number, 0.0, 0.0
            for needed in step.needs:  # it is run for each request: comprehensions would take twice as long
                compute_s, busy_s = max(compute_s, computed[needed]), max(busy_s, busy[needed])
            if number in timings:
                _, queue_s, own_s, _ = timings[number]
                compute_s, busy_s = compute_s + own_s, busy_s + queue_s + own_s
            computed[number], busy[number] = compute_s, busy_s
        elapsed_s, compute_s = self._binding.clock() - self._arrival_s, max(computed)
        rows = max([each.rows for each in timings.values()], default=0)
        own = tuple([timings[number] for number in sorted(timings)])
        timing = BatchTiming(max(0.0, elapsed_s - compute_s), compute_s, rows, own)
        return timing, max(0.0, elapsed_s - max(busy))

    def _fail(self, error: Exception) -> None:
        if not self.unwanted:
            reply = self._reply
            self._end("failed")
            reply.set_exception(error)

    def _end(self, outcome: str, timing: BatchTiming = NO_TIME, overhead_s: float = 0.0) -> None:
        """Nothing is kept for it, and nothing more is computed for it."""
        self.over = True
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.cancel()
        for fold in self._folds.values():
            fold.cancel()
        self._arrays, self._request = [], _NOTHING
        self._binding.end_flow()
        if outcome:
            self._binding.tell(self._event(outcome, timing, overhead_s))

    def _event(self, outcome: str, timing: BatchTiming, overhead_s: float) -> PipelineEnded:
        binding, rows = self._binding, max(0, *self._counts)
        answered_s = timing.queue_s + timing.compute_s
        seconds = answered_s if outcome == "answered" else binding.clock() - self._arrival_s
        steps = self._ended_steps() if self._admitted else []
        whose = binding.name, binding.version, binding.plan.signature.name
        return PipelineEnded(*whose, outcome, rows, seconds, overhead_s, timing, steps, len(self.members) or 1)

    def _ended_steps(self) -> list[StepEnded]:
        ended = []
        for step in self._binding.plan.steps:
            number = step.number
            rows, timing, failed = self._rows[number], self._timings.get(number), number in self._failed
            if timing is not None or failed or rows is NO_ROWS:
                of_rows = max(0, self._counts[step.kind])
                computed = 0 if timing is None else of_rows if rows is None else rows.size
                ended.append(StepEnded(step.name, computed, of_rows, timing, failed))
        return ended


_NOTHING = InferenceRequest({})


class _EachAlone(ServingError):
    """A model takes the rows of each request in a call of its own."""


class StepReply:
    """The reply of one step."""

    __slots__ = ("_elements", "_flow", "_over", "_step")

    def __init__(self, flow: Flow, step: StepPlan, elements: int) -> None:
        self._flow = flow
        self._step = step
        self._elements = elements
        self._over = False

    def done(self) -> bool:
        return self._over or self._flow.given_up()

    def set_result(self, answer: Answer, /) -> None:
        self._over = True
        self._flow.answered(self._step, answer, self._elements)

    def set_exception(self, error: Exception, /) -> None:
        self._over = True
        self._flow.failed(self._step, error)


class StepReplies(StepReply):
    """The CoalescedReply of one step of a flow of several."""

    __slots__ = ()

    @property
    def rows(self) -> Sequence[int]:
        """Those that each member has in this step."""
        return self._flow.rows_by_member(self._step, self._elements)

    def apart(self) -> Sequence[Reply]:
        self._over = True
        flow = self._flow
        flows = [flow] * len(flow.members) if flow.over else flow.apart()
        return [StepReply(each, self._step, self._elements) for each in flows]


def _at(step: StepPlan, error: ServingError) -> ServingError:
    """The same error, which names the step."""
    named = copy(error)
    named.args = (f"Step {step.name!r}: {error}",)
    return named.with_traceback(None)
