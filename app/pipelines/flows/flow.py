"""A flow: one request on its way through the steps of a pipeline; joint_flow.py has flows of several requests.

All code here runs on the event loop, in calls of replies: a step has no task and no future.

Rules
1. A flow keeps the models that it began with (binding.py).
2. Admission judges a flow once, at its first steps. Later steps are always queued: behind the first steps of requests
   that have come by then, to share calls with them, and before requests that come afterwards. Measured: images of mixed
   sizes had 4 rows in a call of the net before this rule, and have 64 with it.
3. A flow is answered once. When it is answered, has failed or is cancelled, all its steps are cancelled.
4. Tensors are passed on as they are, if all rows go the same way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from app.batching.priority import priority_offset_s
from app.batching.request import LaterSteps, PendingRequest, RequestHandle
from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, ServingError, WouldBeLate
from app.core.events import PipelineEnded
from app.core.inference import NO_TIME, Array, BatchTiming, InferenceRequest, StepTiming
from app.core.reply import ANSWERED, Answer, Reply
from app.pipelines.flows.members import Member
from app.pipelines.flows.rows import NO_ROWS, Rows
from app.pipelines.flows.step_records import StepRecords
from app.pipelines.flows.values import FlowValues
from app.pipelines.fold.forests import ForestInputs
from app.pipelines.plan import FoldPlan, StepPlan

if TYPE_CHECKING:
    from app.pipelines.binding import Binding
    from app.pipelines.fold_request import FoldRequest

logger = logging.getLogger(__name__)


class Flow:
    """The Cancellable of one request.

    Args:
        counts: the numbers of rows of the request, by kind; -1 until a fold says it.
        arrival_s: monotonic seconds.

    Attributes:
        over: whether the flow was answered, has failed, was cancelled or rejected, or other flows have its members.
    """

    __slots__ = (
        "_admitted", "_arrival_s", "_asked_s", "_binding", "_first", "_folds", "_handles", "_needed", "_needs_left",
        "_place_s", "_records", "_reply", "_request", "_steps_left", "_values", "over",
    )  # fmt: skip

    def __init__(
        self, binding: Binding, request: InferenceRequest, counts: list[int], reply: Reply, arrival_s: float
    ) -> None:
        plan = binding.plan
        self.over = False
        self._binding = binding
        self._request = request
        self._reply = reply
        self._arrival_s = self._place_s = arrival_s  # a place in the queue is a time of arrival, too (rule 2)
        self._asked_s = arrival_s  # when a step was submitted last: its time-out counts from there
        self._admitted = False
        self._needed, self._first = plan.way(request.outputs)
        self._steps_left = len(self._needed)
        self._needs_left = [len(step.needs) for step in plan.steps]  # by step, the steps that it still waits for
        self._values = FlowValues(plan, request.inputs, counts)
        self._records = StepRecords()
        self._handles: dict[int, RequestHandle] = {}
        self._folds: dict[int, FoldRequest] = {}

    #: The outcome in the event of a flow that is rejected as it begins.
    _IF_REJECTED = "rejected"

    @property
    def requests(self) -> int:
        return 1

    def begin(self) -> None:
        """Submit the first steps. Raises what their models raise; nothing is queued then."""
        self._binding.begin_flow(self._arrival_s)
        try:
            self._start_first()
        except BaseException:
            if not self.over:
                self._end(self._IF_REJECTED)
            raise
        self._admitted = True
        self._finish_if_done()

    def _start_first(self) -> None:
        for step in self._first:
            if not self.over:
                self._admitted |= step.optional and bool(self._handles or self._folds)
                self._start(step)

    def cancel(self) -> None:
        """Give up the answer; a step that is not being computed yet never is."""
        if not self.over:
            self._end("cancelled")

    @property
    def unwanted(self) -> bool:
        """Whether the flow is over, or no caller waits for its answer any more."""
        return self.over or self._reply.done()

    def member_left(self) -> None:
        """End the flow, as its caller does not wait any more."""
        self.cancel()

    # --- folds ---

    def enter(self) -> None:
        """Begin a flow of a pipeline with folds, in the next turn, with other requests; the reply gets errors."""
        self._binding.begin_flow(self._arrival_s)
        self._binding.admission.add(self)

    def trees(self, step: StepPlan) -> tuple[ForestInputs, float] | None:
        """The trees for a fold, and their arrival; None if the fold is not computed, or the flow is over."""
        plan, values = step.fold, self._values
        if plan is None or step.number not in self._needed or self.unwanted:
            return None
        children = None if plan.children is None else values.array(plan.children)
        types = None if plan.types is None else values.array(plan.types)
        starts = 0 if plan.start_kind is None else values.counts[plan.start_kind]
        return ForestInputs(starts, values.counts[plan.node_kind], children, types), self._arrival_s

    def reserved(self, step: StepPlan, fold: FoldRequest | ServingError) -> None:
        """Take the reservation of a fold, which says the number of its roots, or the error that rejects its trees."""
        if not isinstance(fold, ServingError):
            assert step.fold is not None  # noqa: S101 - `trees` found one
            self._folds[step.number] = fold
            counts, kind, roots = self._values.counts, step.fold.root_kind, len(fold.roots)
            if counts[kind] in {-1, roots}:
                counts[kind] = roots
                return
            fold = InvalidRequest(
                f"there are {roots} trees; expected {counts[kind]}, as there are rows of other inputs that belong to "
                "them"
            )
        self._reject(_at(step, fold))

    def begin_later(self) -> None:
        """Begin the flow after `enter`; never raises."""
        if self.unwanted:
            self.cancel()
            return
        try:
            self._start_first()
            self._admitted = True
            self._finish_if_done()
        except ServingError as error:
            self._reject(error)
        except Exception:
            logger.exception("Pipeline %s could not begin a request", self._binding.name)
            self._reject(InferenceFailed("The pipeline could not begin the request"))

    def _reject(self, error: ServingError) -> None:
        if not self.over:
            reply = self._reply
            self._end("rejected")
            if not reply.done():
                reply.set_exception(error)

    def _start_fold(self, step: StepPlan, plan: FoldPlan) -> None:
        # 1. Admission, at the first steps.
        fold, request, reply = self._folds[step.number], self._request, StepReply(self, step, 1)
        offset_s = priority_offset_s(request.priority) if request.priority else 0.0
        pending = PendingRequest(
            _NOTHING.inputs, fold.nodes, reply, self._arrival_s, request.deadline_s, offset_s, request.caller
        )
        if not self._admitted:
            calls = len(self._needed) - 1 + fold.levels
            needs = LaterSteps(
                calls, self._binding.step_models[step.number], lambda: self._later_s(None), self._waiting_rows()
            )
            self._binding.steps.check_flow(pending, needs)

        # 2. The states of start nodes and the inputs of inner nodes.
        start = {key: self._values.gathered(gather, None) for key, gather in plan.start.items()}
        nodes = {key: self._values.gathered(gather, None) for key, gather in plan.nodes.items()}

        # 3. The fold.
        fold.begun_s = self._binding.clock()
        entered_s = self._arrival_s + self._records.compute_s
        try:
            step_fold = self._binding.folds[step.number]
            step_fold.begin(fold, start, nodes, pending, entered_s=entered_s, priority=request.priority)
        except ServingError as error:
            self._records.failed(step)
            raise _at(step, error) from None
        self._binding.steps.watch(pending)

    # --- steps ---

    def _start(self, step: StepPlan, again: bool = False) -> None:
        """Submit a step whose inputs are there, or pass over it if no rows are left for it.

        Args:
            again: the step was submitted before, and keeps its place.
        """
        if step.fold is not None:
            self._start_fold(step, step.fold)
            return

        try:
            rows = self._values.rows_of(step)
        except ServingError as error:
            self._step_rejected(step, error)
            return
        if rows is not None and not rows.size and self._values.counts[step.kind]:
            self._pass_over(step)
        else:
            self._ask(step, rows, again)

    def _ask(self, step: StepPlan, rows: Rows, again: bool) -> None:
        """Submit these rows to the model of a step."""
        self._values.rows[step.number] = rows
        request = self._request
        if not again:
            self._asked_s = self._binding.clock()
            if self._admitted:
                self._place_s = self._binding.newest_s
        deadline_s = min(request.deadline_s, self._asked_s + step.timeout_s)
        try:
            inputs, elements = self._values.inputs(step, rows)
            asked = InferenceRequest(inputs, step.signature, (), deadline_s, request.priority, request.caller)
            self._submit(step, asked, elements, self._asked_s if again else None)
        except ServingError as error:
            self._step_rejected(step, error)

    def _submit(self, step: StepPlan, asked: InferenceRequest, elements: int, asked_s: float | None) -> None:
        binding = self._binding
        if self._admitted and asked_s is None and binding.together and binding.steps.lone:
            # In a turn of its own: sockets are read before it, and a request that arrives shares its call.
            asyncio.get_running_loop().call_soon(self._go_alone, step, asked, elements)
        else:
            self._queue(step, asked, elements, asked_s)

    def _queue(self, step: StepPlan, asked: InferenceRequest, elements: int, asked_s: float | None) -> None:
        model, later = self._binding.models[step.number][0], None if self._admitted else self._later(step)
        reply = StepReply(self, step, elements)
        self._handles[step.number] = model.submit_step(asked, reply, self._place_s, later, asked_s)

    def _go_alone(self, step: StepPlan, asked: InferenceRequest, elements: int) -> None:
        """Compute a later step without the queue if the flow is still alone; never raises."""
        if self.unwanted:
            self.cancel()
        else:
            self._guarded(step, partial(self._compute_alone, step, asked, elements))

    def _compute_alone(self, step: StepPlan, asked: InferenceRequest, elements: int) -> None:
        try:
            in_time = asked.deadline_s > self._binding.clock()  # a late step is rejected by the queue
            answer = self._binding.models[step.number][0].compute_alone(asked) if in_time else None
            if answer is None:
                self._queue(step, asked, elements, None)
        except ServingError as error:
            self._step_rejected(step, error)
        else:
            if answer is not None:
                self.answered(step, answer, elements)

    def _step_rejected(self, step: StepPlan, error: ServingError) -> None:
        """Pass over an optional step that could not be submitted. Raises the error for a first or a needed step."""
        self._records.failed(step)
        if not step.optional or not (self._admitted or isinstance(error, WouldBeLate | DeadlineExceeded)):
            raise _at(step, error) from None
        self._pass_over(step)

    def _later(self, step: StepPlan) -> LaterSteps:
        calls = len(self._needed) - 1 + sum([fold.levels for fold in self._folds.values()])
        models = self._binding.other_models[step.number]
        return LaterSteps(calls, models, lambda: self._later_s(step), self._waiting_rows())

    def _waiting_rows(self) -> int:
        """The rows of the flow's steps that are in the queue."""
        return sum([handle.waiting_rows for handle in self._handles.values()]) if self._handles else 0

    def _later_s(self, step: StepPlan | None) -> float:
        levels = {number: fold.levels for number, fold in self._folds.items()}
        return self._binding.later_s(step, self._values.counts, levels)

    # --- the ends of steps ---

    def answered(self, step: StepPlan, answer: Answer, elements: int) -> None:
        """Take the answer of a step, and go on; never raises."""
        # 1. Outputs follow the rows: otherwise rows would be given to other callers.
        count = self._values.count(step)
        if step.fold is None:
            for value in step.outputs:
                array = answer.outputs[value.name]
                if array.shape[:1] != (count * elements,):
                    self.failed(step, _other_rows(step, value.name, array, count * elements))
                    return

        # 2. The records and values of the step. A fold waited whenever none of its nodes was in a call.
        self._handles.pop(step.number, None)
        queue_s, compute_s, most_rows, _ = answer.timing
        now = self._binding.clock()
        if step.fold is not None:
            queue_s = max(0.0, now - self._folds[step.number].begun_s - compute_s)
        self._records.computed(step, StepTiming(step.name, queue_s, compute_s, most_rows, now - self._arrival_s))
        self._values.keep(step, answer.outputs, elements)
        self._guarded(step)

    def failed(self, step: StepPlan, error: Exception) -> None:
        """Take the error of a step, and go on without an optional one; never raises."""
        handle = self._handles.pop(step.number, None)
        if handle is not None:  # a part of the step may have failed while the rest waits
            handle.cancel()
        self._records.failed(step)
        if step.optional:
            self._values.rows[step.number] = NO_ROWS
            self._guarded(step)
        else:
            self._fail(_at(step, error) if isinstance(error, ServingError) else error)

    def _pass_over(self, step: StepPlan) -> None:
        self._values.rows[step.number] = NO_ROWS
        self._go_on(step)

    def _guarded_start(self, step: StepPlan, again: bool = False) -> None:
        if not self.unwanted:
            self._guarded(step, partial(self._start, step, again))

    def _guarded(self, step: StepPlan, then: Callable[[], None] | None = None) -> None:
        """Go on after a step, or call `then`; an error is the error of the flow's requests."""
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
        """Begin the steps that waited only for this one, which is over."""
        # 1. All counts first: the start of a step may divide the flow, and its parts copy the counts.
        self._steps_left -= 1
        left, due = self._needs_left, []
        for number in step.feeds:
            left[number] -= 1
            if not left[number] and number in self._needed:
                due.append(number)

        # 2. The steps that are due.
        for number in due:
            if not self.unwanted:
                self._start(self._binding.plan.steps[number])

    def _finish_if_done(self) -> None:
        if self.unwanted:
            self.cancel()
        if not self._steps_left and not self.over and self._admitted:
            self._finish()

    def _finish(self) -> None:
        plan, wanted = self._binding.plan, self._request.outputs
        outputs = {
            name: self._values.gathered(gather, None)
            for name, gather in plan.outputs.items()
            if not wanted or name in wanted
        }
        timing, overhead_s = self._records.timing(plan.steps, self._binding.clock() - self._arrival_s)
        answer, reply = Answer(outputs, timing), self._reply
        self._end("answered", timing, overhead_s)
        reply.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if not self.unwanted:
            reply = self._reply
            self._end("failed")
            reply.set_exception(error)

    def _end(self, outcome: str, timing: BatchTiming = NO_TIME, overhead_s: float = 0.0) -> None:
        """End the flow: its steps are cancelled, its arrays let go, its event sent."""
        self.over = True
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.cancel()
        for fold in self._folds.values():
            fold.cancel()
        event = self._event(outcome, timing, overhead_s) if outcome else None
        self._let_go()
        self._binding.end_flow()
        if event is not None:
            self._binding.tell(event)

    def _let_go(self) -> None:
        """Cut the references between the flow and its request: neither waits for the garbage collector."""
        if isinstance(self._reply, Member):
            self._reply.flow = None
        self._values.release()
        self._request, self._reply, self._folds = _NOTHING, ANSWERED, {}

    def _event(self, outcome: str, timing: BatchTiming, overhead_s: float) -> PipelineEnded:
        binding, rows = self._binding, max(0, *self._values.counts)
        answered_s = timing.queue_s + timing.compute_s
        seconds = answered_s if outcome == "answered" else binding.clock() - self._arrival_s
        steps = self._records.ended(binding.plan.steps, self._values) if self._admitted else []
        identity = binding.name, binding.version, binding.plan.signature.name
        return PipelineEnded(*identity, outcome, rows, seconds, overhead_s, timing, steps, self.requests)


class StepReply:
    """The Reply of one step.

    Args:
        elements: the elements of a row, if the step has `each`; else 1.
    """

    __slots__ = ("_elements", "_flow", "_over", "_step")

    def __init__(self, flow: Flow, step: StepPlan, elements: int) -> None:
        self._flow = flow
        self._step = step
        self._elements = elements
        self._over = False

    def done(self) -> bool:
        return self._over or self._flow.unwanted

    def set_result(self, answer: Answer, /) -> None:
        self._over = True
        self._flow.answered(self._step, answer, self._elements)

    def set_exception(self, error: Exception, /) -> None:
        self._over = True
        self._flow.failed(self._step, error)


_NOTHING = InferenceRequest({})


def _other_rows(step: StepPlan, output: str, array: Array, rows: int) -> InferenceFailed:
    """The error of a model whose output does not follow the rows: its rows cannot be given to their callers."""
    got = f"{len(array)} rows" if array.ndim else "a scalar"
    return InferenceFailed(f"{step.models[0]} answered {got} of {output!r} for {rows} rows")


def _at(step: StepPlan, error: ServingError) -> ServingError:
    """The error with the name of the step."""
    named = copy(error)
    named.args = (f"Step {step.name!r}: {error}",)
    return named.with_traceback(None)
