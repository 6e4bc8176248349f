"""A joint flow: several requests, its members, that arrived together (arrivals.py) and are at one step at a time.

Rules (tests/pipelines/flows/test_joint_flow.py)
- A member fares as if it were alone: its own rows, its own error, its answer as soon as it needs no further step.
- All members have rows in each computed step. Members without rows in the next step go on without the others.
- A member that has left is left out of the next step, and out of a step that still waits, which keeps its place.
- Where a call is rejected, or a model takes requests one by one, each member goes on alone, from that step.
- Where only some members fit into a call, these go on without the others, which keep their place
  (request.DivisibleReply).
A flow is divided when no step of it is being computed, between steps or while one waits: the plan is sequential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from app.batching.request import RequestHandle
from app.core.errors import RequestTooLarge, ServingError
from app.core.inference import Array, InferenceRequest
from app.core.reply import CoalescedReply, Reply
from app.pipelines.flows.flow import Flow, StepReply
from app.pipelines.flows.members import JoinedMembers, Member
from app.pipelines.flows.rows import NO_ROWS, Rows
from app.pipelines.flows.values import FlowValues
from app.pipelines.plan import StepPlan

if TYPE_CHECKING:
    from app.pipelines.binding import Binding


class JointFlow(Flow):
    """The Flow of several requests.

    Args:
        request: the rows of all members, one after another.
        arrival_s: of the first member, monotonic seconds.
        reply: gets the answer to all members, if their ways do not part; else each member's reply gets its own.
    """

    __slots__ = ("members",)

    #: No event: each member may be accepted alone.
    _IF_REJECTED = ""

    def __init__(
        self,
        binding: Binding,
        request: InferenceRequest,
        members: Sequence[Member],
        arrival_s: float,
        reply: CoalescedReply | None = None,
    ) -> None:
        super().__init__(binding, request, [_rows_of(members)], JoinedMembers(members, reply), arrival_s)
        self.members = members
        for member in members:
            member.flow = self

    @property
    def requests(self) -> int:
        return len(self.members)

    # --- members that leave ---

    def member_left(self) -> None:
        """Take the rows of a member that left out of a step that still waits; it is in no further step."""
        if self.over:
            return
        if self._reply.done():
            self.cancel()
            return
        for number, handle in [*self._handles.items()]:
            if handle.withdraw():
                del self._handles[number]
                step = self._binding.plan.steps[number]
                asyncio.get_running_loop().call_soon(self._guarded_start, step, True)

    def _drop_left_members(self) -> None:
        """End the members that have left. At least one is still there."""
        done = [member.done() for member in self.members]
        if any(done):
            left = np.array(done)
            self._part(left)._end("cancelled")
            self._give(self, ~left)

    # --- members whose ways part ---

    def _start(self, step: StepPlan, again: bool = False) -> None:
        self._drop_left_members()
        super()._start(step, again)

    def _ask(self, step: StepPlan, rows: Rows, again: bool) -> None:
        without: Flow | None = None
        if rows is not None:
            having = np.array(self._rows_by_member(rows)) > 0
            if not having.all():
                rows = (self._of_rows(having).cumsum() - 1)[rows]  # by their new numbers
                without = self._split_off(step, having)
        try:
            super()._ask(step, rows, again)
        finally:
            if without is not None:  # last: its answers may change this flow
                without._guarded(step)

    def _split_off(self, step: StepPlan, having: Array) -> Flow:
        """A flow of the members that have no rows in a step; the others stay."""
        if not self._admitted:
            raise _NotTogether
        without = self._part(~having)
        without._values.rows[step.number] = NO_ROWS
        self._give(self, having)
        return without

    def _finish(self) -> None:
        self._drop_left_members()
        super()._finish()

    def _let_go(self) -> None:
        for member in self.members:
            member.flow = None
        self.members = ()
        super()._let_go()

    # --- smaller flows ---

    def _submit(self, step: StepPlan, asked: InferenceRequest, elements: int, asked_s: float | None) -> None:
        """Submits a step of all members, as a Flow does. Raises _NotTogether: no call takes the rows of all members."""
        if len(self.members) == 1:
            super()._submit(step, asked, elements, asked_s)
            return
        model, later = self._binding.models[step.number][0], None if self._admitted else self._later(step)
        if len(next(iter(asked.inputs.values()))) > model.sizes.largest:
            raise _NotTogether
        reply = _StepReplies(self, step, elements)
        handle = model.submit_steps(asked, reply, self._place_s, later, asked_s)
        if handle is None:
            raise _NotTogether(alone=True)
        self._handles[step.number] = handle

    def _step_rejected(self, step: StepPlan, error: ServingError) -> None:
        if not self._admitted or len(self.members) == 1:
            super()._step_rejected(step, error)
            return
        parts = self._halves() if isinstance(error, _NotTogether) and not error.alone else self.apart()
        for part in parts:
            part._guarded_start(step, True)

    def apart(self) -> list[Flow]:
        """A flow for each member, which goes on from here; the flow of a member that has left is soon over."""
        return self._cut(range(len(self.members) + 1))

    def _halves(self) -> list[Flow]:
        number = len(self.members)
        return self._cut((0, number // 2, number))

    def divide(self, step: StepPlan, number: int, handle: RequestHandle) -> list[Flow]:
        """A flow for the first `number` members, and one for the other members, while they wait for a step.

        Args:
            handle: of the first members' part of the step.
        """
        step_handle = {step.number: self._handles.pop(step.number)}
        return self._cut((0, number, len(self.members)), ({step.number: handle}, step_handle))

    def _cut(self, bounds: Sequence[int], handles: Sequence[dict[int, RequestHandle]] = ()) -> list[Flow]:
        """Flows for the members between neighbouring bounds; this flow is over."""
        ends = [0, *accumulate([member.rows for member in self.members])]
        parts = [self._slice(first, last, ends) for first, last in pairwise(bounds)]
        for part, step_handle in zip(parts, handles, strict=False):
            part._handles = step_handle
        self.over, self.members = True, ()
        super()._let_go()
        self._binding.end_flow()
        for part in parts:
            if part.unwanted:  # later: its step would leave the queue, which may be dividing it right now
                asyncio.get_running_loop().call_soon(part.cancel)
        return parts

    def step_rows(self, step: StepPlan, elements: int) -> Sequence[int]:
        """The rows of each member in the call of a step."""
        rows = self._values.rows[step.number]
        counts = [member.rows for member in self.members] if rows is None else self._rows_by_member(rows)
        return [elements * count for count in counts]

    # --- parts ---

    def _part(self, kept: Array) -> Flow:
        """A flow of some members (a mask), in the state of this flow."""
        part = self._copy(int(np.count_nonzero(kept)))
        self._give(part, kept)
        return part

    def _copy(self, members: int) -> Flow:
        part: Flow = Flow.__new__(Flow if members == 1 else JointFlow)
        for name in Flow.__slots__:
            setattr(part, name, getattr(self, name))
        part._needs_left, part._records, part._handles = self._needs_left.copy(), self._records.copy(), {}
        self._binding.begin_flow(None)
        return part

    def _give(self, flow: Flow, kept: Array) -> None:
        """Give a flow these members (a mask), and their values."""
        members = [member for member, each in zip(self.members, kept.tolist(), strict=True) if each]
        _make(flow, members, self._values.taken(self._of_rows(kept)))

    def _slice(self, first: int, last: int, ends: Sequence[int]) -> Flow:
        """A flow of neighbouring members, with views of their values.

        Args:
            ends: the first row of each member, and the end of the last one.
        """
        part = self._copy(last - first)
        _make(part, self.members[first:last], self._values.slice(ends[first], ends[last]))
        return part

    def _of_rows(self, members: Array) -> Array:
        """The mask of rows for a mask of members."""
        return members.repeat([member.rows for member in self.members])

    def _rows_by_member(self, rows: Array) -> list[int]:
        """The number of these rows that each member has."""
        ends = np.cumsum([member.rows for member in self.members])
        counts: list[int] = np.bincount(ends.searchsorted(rows, side="right"), minlength=len(ends)).tolist()
        return counts


def _make(flow: Flow, members: Sequence[Member], values: FlowValues) -> None:
    """Give a flow its members and their values."""
    flow._values = values
    flow._reply = JoinedMembers(members) if len(members) > 1 else members[0]
    if isinstance(flow, JointFlow):
        flow.members = members
    for member in members:
        member.flow = flow


class _NotTogether(RequestTooLarge):
    """A model does not take the rows of all members in one call.

    alone: the model takes only one request in a call.
    """

    def __init__(self, text: str = "expected fewer requests together", *, alone: bool = False) -> None:
        super().__init__(text)  # by position, as in every error: errors are copied
        self.alone = alone


class _StepReplies(StepReply):
    """The CoalescedReply of one step."""

    __slots__ = ("_requests",)
    _flow: JointFlow

    def __init__(self, flow: JointFlow, step: StepPlan, elements: int) -> None:
        super().__init__(flow, step, elements)
        self._requests = flow.requests

    @property
    def rows(self) -> Sequence[int]:
        """The rows of each member in this step; none if the flow is over."""
        return [0] * self._requests if self._flow.over else self._flow.step_rows(self._step, self._elements)

    def separate(self) -> Sequence[Reply]:
        self._over = True
        flows = [self._flow] * self._requests if self._flow.over else self._flow.apart()
        return [StepReply(each, self._step, self._elements) for each in flows]

    def divide(self, number: int, handle: RequestHandle) -> tuple[Reply, Reply]:
        """See DivisibleReply."""
        self._over = True
        first, others = self._flow.divide(self._step, number, handle)
        return self._of(first), self._of(others)

    def _of(self, flow: Flow) -> StepReply:
        if isinstance(flow, JointFlow):
            return _StepReplies(flow, self._step, self._elements)
        return StepReply(flow, self._step, self._elements)


def _rows_of(members: Iterable[Member]) -> int:
    return sum([member.rows for member in members])
