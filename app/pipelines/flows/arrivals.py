"""Arrivals at a pipeline: requests of one turn of the event loop, which may go through it as one joint flow.

The members of a joint flow share the costs of a step beside its model: they are joined once, and separated when they
are answered, or where their ways part (joint_flow.py).

Rules
- Requests of equal form are joined: signature, outputs, types and inner shapes of inputs, priority and caller, and
  about equal time left, since a flow has the earliest deadline of its members.
- They begin in the next callback of the event loop, or when a device asks for work before that. A rejected joint flow
  tells its members nothing: each begins alone then, in order of arrival.
- A joint flow has the rows of one call. Where several calls run at a time, joint flows get equal shares of the rows.
- A large request goes alone, since joining copies it.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Sequence
from math import floor, inf, log2
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.core.errors import InferenceFailed, ServingError
from app.core.inference import InferenceRequest, tensor_bytes
from app.core.reply import Reply
from app.pipelines.flows.flow import Flow
from app.pipelines.flows.joint_flow import JointFlow
from app.pipelines.flows.members import Member

if TYPE_CHECKING:
    from app.pipelines.binding import Binding

logger = logging.getLogger(__name__)

#: The most bytes of a joint flow, and of a request that joins one. Chosen: copying them takes 0.1 ms.
_MOST_BYTES = 2**20

#: The most rows of a joint flow. Chosen: separating as many requests takes 4 ms.
_MOST_ROWS = 256

#: Deadlines count as equal if the time that is left differs by less than the 64th part of a power of two, 1 %.
_PARTS_OF_POWER = 64


class _Arrived(NamedTuple):
    request: InferenceRequest
    member: Member
    bytes: int


class _Group:
    """Arrived requests of equal form, in order of arrival."""

    __slots__ = ("arrival_s", "arrived", "binding")

    def __init__(self, binding: Binding, arrival_s: float) -> None:
        self.binding = binding
        self.arrival_s = arrival_s
        self.arrived: list[_Arrived] = []


class Arrivals:
    """The arrivals at one pipeline in this turn."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: dict[object, _Group] = {}
        self._offered = False

    def add(self, binding: Binding, form: object, request: InferenceRequest, rows: int, reply: Reply) -> Member:
        """Add a checked request. Its flow begins, and is admitted or rejected, in the next callback of the event loop.

        Args:
            form: the signature, the outputs, and name, type and inner shape of each input.
            reply: gets the answer, or the error of a rejection.
        """
        # 1. The first request of the turn asks for the callback, and for a call from a free device.
        if not self._groups:
            self._loop.call_soon(self._begin)
            if not self._offered:
                self._offered = True
                binding.steps.when_free(self._supply)

        # 2. Its group. A request without rows, or for steps side by side, is alone.
        now = binding.clock()
        left_s = request.deadline_s - now
        time = inf if left_s == inf else floor(_PARTS_OF_POWER * log2(left_s)) if left_s > 0 else -inf
        member = Member(reply, rows)
        key: object = member
        if rows and binding.together:
            key = id(binding), form, request.priority, request.caller, time
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(binding, now)
            binding.begin_flow(now)  # until all of the group have begun
        group.arrived.append(_Arrived(request, member, tensor_bytes(request.inputs)))
        return member

    def _supply(self) -> None:
        self._offered = False
        self._begin()

    def _begin(self) -> None:
        groups, self._groups = self._groups, {}
        for group in groups.values():
            arrived = [each for each in group.arrived if not each.member.done()]
            try:
                for together in _shares(group.binding, arrived):
                    _begin_together(group, together)
            except Exception:
                logger.exception("A bug kept requests from going through a pipeline together")
                for each in arrived:
                    _fail(each.member, InferenceFailed("The pipeline could not begin"))
            finally:
                group.binding.end_flow()


def _shares(binding: Binding, arrived: Sequence[_Arrived]) -> Sequence[Sequence[_Arrived]]:
    """The arrived requests, split into joint flows by rows and bytes."""
    if len(arrived) < 2:
        return [arrived]
    most = min(_MOST_ROWS, binding.joint_rows(sum([each.member.rows for each in arrived])))
    shares: list[list[_Arrived]] = []
    rows = size = inf
    for each in arrived:
        rows, size = rows + each.member.rows, size + each.bytes
        if rows > most or size > _MOST_BYTES:
            shares.append([])
            rows, size = each.member.rows, each.bytes
        shares[-1].append(each)
    return shares


def _begin_together(group: _Group, arrived: Sequence[_Arrived]) -> None:
    if len(arrived) > 1:
        members, request = [each.member for each in arrived], all_rows_of([each.request for each in arrived])
        try:
            JointFlow(group.binding, request, members, group.arrival_s).begin()
            return
        except ServingError:
            pass  # a member may be accepted alone
    for each in arrived:
        if not each.member.done():
            _begin_alone(group, each.request, each.member)


def _begin_alone(group: _Group, request: InferenceRequest, member: Member) -> None:
    flow = member.flow = Flow(group.binding, request, [member.rows], member, group.arrival_s)
    try:
        flow.begin()
    except ServingError as error:
        # The error loses its frames, which hold tensors as long as a caller keeps it.
        error.__cause__ = error.__context__ = None
        _fail(member, error.with_traceback(None))


def all_rows_of(requests: Sequence[InferenceRequest]) -> InferenceRequest:
    """One request with the rows of requests of equal form; it has the earliest deadline."""
    first = requests[0]
    inputs = {name: np.concatenate([request.inputs[name] for request in requests]) for name in first.inputs}
    deadline_s = min([request.deadline_s for request in requests])
    return InferenceRequest(inputs, first.signature, first.outputs, deadline_s, first.priority, first.caller)


def _fail(member: Member, error: ServingError) -> None:
    try:
        if not member.done():
            member.set_exception(error)
    except Exception:
        logger.exception("A reply could not be set")
