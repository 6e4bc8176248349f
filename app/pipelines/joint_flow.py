"""A flow of several requests, its members, that arrived together (arrivals.py) and are at one step at a time.

Rules (test_arrivals.py)
- Each fares as if it were alone: its own rows, its own error, its answer as soon as it needs no further step.
- All members have rows in each step that was computed. Those that have none in the next go on without the others.
- A member that has left is left out of the next step, and out of one that still waits, which keeps its place.
- Where a call is rejected, or a model takes requests one by one, each goes on alone, from that step.
A flow is divided between its steps only, when nothing of it is under way: the plan is sequential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from app.core.errors import InvalidRequest, OutOfMemory, ServingError
from app.core.inference import Array, InferenceRequest
from app.core.reply import CoalescedReply, Reply
from app.pipelines.flow import Flow, StepReply
from app.pipelines.members import Member, Together
from app.pipelines.plan import StepPlan, Value
from app.pipelines.rows import NO_ROWS, Rows

if TYPE_CHECKING:
    from app.pipelines.binding import Binding


class JointFlow(Flow):
    """The Flow of several requests.

    Args:
        request: the rows of all, one after the other.
        arrival_s: of the first of them, monotonic seconds.
        reply: gets the answer to all of them, if their ways do not part; else each member gets its own.
    """

    __slots__ = ("members",)

    #: Each may be accepted alone.
    _IF_REJECTED = ""

    def __init__(
        self,
        binding: Binding,
        request: InferenceRequest,
        members: Sequence[Member],
        arrival_s: float,
        reply: CoalescedReply | None = None,
    ) -> None:
        super().__init__(binding, request, [_rows_of(members)], reply or Together(members), arrival_s)
        self.members = members
        for member in members:
            member.flow = self

    @property
    def requests(self) -> int:
        return len(self.members)

    # --- who leaves ---

    def member_left(self) -> None:
        """Its rows leave a step that still waits, and come into no other one."""
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

    def _without_those_who_left(self) -> None:
        """They are over, and nothing more is computed for them. Somebody is left."""
        done = np.array([member.done() for member in self.members])
        if done.any():
            self._part(done)._end("cancelled")
            self._keep(~done)

    # --- whose ways part ---

    def _start(self, step: StepPlan, again: bool = False) -> None:
        self._without_those_who_left()
        super()._start(step, again)

    def _ask(self, step: StepPlan, rows: Rows, again: bool) -> None:
        without: Flow | None = None
        if rows is not None:
            having = np.array(self._rows_by_member(rows)) > 0
            if not having.all():
                rows = (self._of_rows(having).cumsum() - 1)[rows]  # by their new numbers
                without = self._without(step, having)
        try:
            super()._ask(step, rows, again)
        finally:
            if without is not None:  # last: its answers may change what is here
                without._guarded(step)

    def _without(self, step: StepPlan, having: Array) -> Flow:
        """A flow of the members that have no rows in a step; the others stay."""
        if not self._admitted:
            raise _OneByOne
        without = self._part(~having)
        without._rows[step.number] = NO_ROWS
        self._keep(having)
        return without

    def _finish(self) -> None:
        self._without_those_who_left()
        super()._finish()

    # --- each alone ---

    def _submit(self, step: StepPlan, asked: InferenceRequest, elements: int) -> None:
        if len(self.members) == 1:
            super()._submit(step, asked, elements)
            return
        model, later = self._binding.models[step.number][0], None if self._admitted else self._later(step)
        handle = model.submit_steps(asked, _StepReplies(self, step, elements), self._place_s, later)
        if handle is None:
            raise _OneByOne
        self._handles[step.number] = handle

    def _rejected(self, step: StepPlan, error: ServingError) -> None:
        if self._admitted and len(self.members) > 1:
            self._each_alone(step)
        else:
            super()._rejected(step, error)

    def failed(self, step: StepPlan, error: Exception) -> None:
        if isinstance(error, InvalidRequest | OutOfMemory) and len(self.members) > 1:  # one of them is to blame
            self._handles.pop(step.number, None)
            self._each_alone(step)
        else:
            super().failed(step, error)

    def _each_alone(self, step: StepPlan) -> None:
        for part in self.apart():
            part._guarded_start(step)

    def apart(self) -> list[Flow]:
        """A flow for each member, which goes on from here; those of members that have left are over, as is this one."""
        parts = [self._part(np.arange(len(self.members)) == number) for number in range(len(self.members))]
        self.over = True
        self._binding.end_flow()
        for part in parts:
            if part.unwanted:
                part.cancel()
        return parts

    def step_rows(self, step: StepPlan, elements: int) -> Sequence[int]:
        """The rows of each member in the call of a step."""
        rows = self._rows[step.number]
        counts = [member.rows for member in self.members] if rows is None else self._rows_by_member(rows)
        return [elements * count for count in counts]

    # --- parts ---

    def _part(self, kept: Array) -> Flow:
        """A flow of some of its members (a mask), as it is now."""
        part: Flow = Flow.__new__(Flow if np.count_nonzero(kept) == 1 else JointFlow)
        for name in Flow.__slots__:
            setattr(part, name, getattr(self, name))
        part._missing, part._timings, part._handles = self._missing.copy(), self._timings.copy(), {}
        self._give(part, kept)
        self._binding.begin_flow(None)
        return part

    def _keep(self, kept: Array) -> None:
        """From now on only these members are its own."""
        self._give(self, kept)

    def _give(self, flow: Flow, kept: Array) -> None:
        """Makes these members, and what is known of them, those of a flow."""
        of_kept = self._of_rows(kept)
        new_numbers = of_kept.cumsum() - 1
        members = [member for member, each in zip(self.members, kept.tolist(), strict=True) if each]

        plan, arrays, all_rows = self._binding.plan, self._arrays.copy(), self._rows.copy()
        _take(arrays, plan.inputs.values(), of_kept)
        for number, rows in enumerate(all_rows):
            if rows is None:
                _take(arrays, plan.steps[number].outputs, of_kept)
            elif rows.size:
                here = of_kept[rows]
                _take(arrays, plan.steps[number].outputs, here)
                all_rows[number] = new_numbers[rows[here]]

        flow._arrays, flow._rows, flow._counts = arrays, all_rows, [_rows_of(members)]
        flow._reply = Together(members) if len(members) > 1 else members[0]
        if isinstance(flow, JointFlow):
            flow.members = members
        for member in members:
            member.flow = flow

    def _of_rows(self, members: Array) -> Array:
        """From a mask of members to one of rows."""
        return members.repeat([member.rows for member in self.members])

    def _rows_by_member(self, rows: Array) -> list[int]:
        """How many of these rows each member has."""
        ends = np.cumsum([member.rows for member in self.members])
        counts: list[int] = np.bincount(ends.searchsorted(rows, side="right"), minlength=len(ends)).tolist()
        return counts


class _OneByOne(ServingError):
    """A model takes the rows of each request in a call of its own."""


class _StepReplies(StepReply):
    """The CoalescedReply of one step."""

    __slots__ = ()
    _flow: JointFlow

    @property
    def rows(self) -> Sequence[int]:
        """Those that each member has in this step."""
        return self._flow.step_rows(self._step, self._elements)

    def apart(self) -> Sequence[Reply]:
        self._over = True
        flow = self._flow
        flows = [flow] * len(flow.members) if flow.over else flow.apart()
        return [StepReply(each, self._step, self._elements) for each in flows]


def _take(arrays: list[Array | None], values: Iterable[Value], taken: Array) -> None:
    for value in values:
        array = arrays[value.number]
        if array is not None:
            arrays[value.number] = array[taken]


def _rows_of(members: Iterable[Member]) -> int:
    return sum([member.rows for member in members])
