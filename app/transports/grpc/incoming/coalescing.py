"""Calls that arrive in one turn of the event loop are begun together, and answered with one write for each connection.

The rules are those of HTTP (app/transports/http/direct/request_coalescer.py): calls with messages of one form are
decoded into one array, submitted as one request and computed by one call if the model is quick; what is unusual or
invalid begins alone, in order of arrival (app/transports/requests_of_a_turn.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from math import frexp
from typing import Any

from app.core.burst import Burst
from app.core.errors import DeadlineExceeded, InvalidRequest, OutOfMemory
from app.core.inference import Array
from app.core.interfaces import Cancellable
from app.core.reply import COMPLETED, Answer, Reply
from app.transports.fairness.fair_queue import Share
from app.transports.grpc.incoming.unary_call import UnaryCall
from app.transports.grpc.taskless import CallsAsOne, Taskless
from app.transports.memory.reply_room import reserve_now
from app.transports.requests_of_a_turn import Answers, RequestsOfATurn

logger = logging.getLogger(__name__)

_Arrived = list[tuple[UnaryCall, bytes]]


class CallCoalescer(RequestsOfATurn[UnaryCall]):
    """Begins calls of gRPC.

    Args:
        flush: sends what was answered.
    """

    def __init__(self, burst: Burst, flush: Callable[[], None], clock: Callable[[], float]) -> None:
        super().__init__(clock, burst)
        self._flush = flush

    def share_of(self, call: UnaryCall) -> Share:
        return call.connection.share

    def begin_together(self, arrived: Sequence[tuple[UnaryCall, bytes]]) -> _Arrived:
        alone, groups = _by_form(arrived)
        read: list[CoalescedCalls] = []
        for (taskless, form, caller, _), group in groups:
            try:
                read += _read_group(taskless, form, caller, group, self.answers)
            except Exception:  # no accepted call may be lost: each begins alone
                logger.exception("A bug kept %d requests from being computed together", len(group))
        self.answers.submit(read)
        for _, group in groups:
            alone += [each for each in group if each[0].handle is None and not each[0].answered]
        return alone

    def begin_alone(self, call: UnaryCall, content: bytes) -> bool:
        if call.answered or call.handle is not None:
            return False
        call.begin(content)
        return True

    def turn_ends(self) -> None:
        self._flush()


#: The method, the form of the message, the caller, and how long the call has: the power of two that its seconds are
#: below.
_Kind = tuple[Taskless, Any, str, int]

_Group = tuple[_Kind, _Arrived]


def _by_form(arrived: Sequence[tuple[UnaryCall, bytes]]) -> tuple[_Arrived, list[_Group]]:
    """The calls that begin alone, and groups of at least two that may begin together: of one form and caller.

    Their deadlines are alike, since a group has the earliest of them: one with hardly any time takes none from others.
    """
    alone: _Arrived = []
    groups: dict[_Kind, _Arrived] = {}
    for each in arrived:
        call, content = each
        taskless: Any = call.method.taskless  # it has one, else it would have a task
        form: Any = taskless.form(content)
        permit = call.permit
        if form is None or call.head.priority is not None or (permit and not permit.allows(taskless.model(form))):
            alone.append(each)
            continue
        _, power = frexp(call.deadline_s - call.started_s)
        key = (taskless, form, call.caller, power)
        group = groups.get(key)
        if group is None:
            groups[key] = [each]
        else:
            group.append(each)
    several: list[_Group] = []
    for key, group in groups.items():
        if len(group) > 1:
            several.append((key, group))
        else:
            alone += group
    return alone, several


def _read_group(
    taskless: Taskless, form: Any, caller: str, group: _Arrived, answers: Answers
) -> Iterator[CoalescedCalls]:
    """Calls of one form in as few calls of the model as possible; those that are not among these begin alone."""
    deadline_s = min([call.deadline_s for call, _ in group])
    coalesced = taskless.begin_coalesced(form, [content for _, content in group], deadline_s, caller)
    if coalesced is None:
        return
    count = max(1, coalesced.max_rows // coalesced.rows)
    if len(group) <= count:
        yield CoalescedCalls(group, coalesced, coalesced.request.inputs, answers)
        return
    for first in range(0, len(group), count):
        part = group[first : first + count]
        rows = slice(first * coalesced.rows, (first + len(part)) * coalesced.rows)
        inputs = {name: array[rows] for name, array in coalesced.request.inputs.items()}
        yield CoalescedCalls(part, coalesced, inputs, answers)


@dataclass(slots=True, eq=False, repr=False)
class CoalescedCalls:
    """Calls that are computed by one call of the model; it gets the answer and gives each its own rows."""

    arrived: _Arrived
    coalesced: CallsAsOne
    inputs: dict[str, Array]
    answers: Answers
    computed: bool = False
    waiting: int = 0  # calls that are not cancelled
    handle: Cancellable = COMPLETED

    def submit(self) -> None:
        coalesced = self.coalesced
        request = copy(coalesced.request)
        request.inputs = self.inputs
        arrivals_s = [call.started_s for call, _ in self.arrived]
        handle = coalesced.model.submit_coalesced(request, arrivals_s, self)
        if handle is None or self.computed:
            return
        self.handle = handle
        for call, _ in self.arrived:
            if not call.answered and call.computation is None:
                self.waiting += 1
                call.submitted(self)

    def cancel(self) -> None:
        """Cancels one of the calls. The call of the model is cancelled with the last of them."""
        self.waiting -= 1
        if not self.waiting:
            self.handle.cancel()

    # --- the batcher's CoalescedReply ---

    @property
    def rows(self) -> Sequence[int]:
        return [self.coalesced.rows] * len(self.arrived)

    def done(self) -> bool:
        return all(call.answered for call, _ in self.arrived)

    def apart(self) -> Sequence[Reply]:
        return [_OwnReply(call, content, self.coalesced) for call, content in self.arrived]

    def set_result(self, answer: Answer, /) -> None:
        self.computed = True
        self.answers.give(self, answer)

    def answer(self, answer: Answer) -> None:
        room = self.arrived[0][0].connection.memory
        try:
            reserved = reserve_now(room, answer.outputs)
        except Exception as error:
            self.set_exception(error)
            return
        try:
            self._write(answer)
        finally:
            room.room.give(reserved)

    def _write(self, answer: Answer) -> None:
        coalesced = self.coalesced
        try:
            messages = coalesced.write(answer.outputs)
        except Exception as error:
            self.set_exception(error)
            return
        if self.arrived[0][0].method.calls.tracing is not None:
            for call, _ in self.arrived:
                _note_timing(call, answer, coalesced.rows)
        for (call, _), message in zip(self.arrived, messages, strict=True):
            if not call.answered:
                call.handle = None  # there is nothing left to cancel
                _note_asked(call, coalesced)
                _reply(call, message)

    def set_exception(self, error: Exception, /) -> None:
        """Finds the invalid call by beginning each alone; an error of another kind is the reply to all of them.

        A deadline that has passed is that of the earliest.
        """
        now = self.arrived[0][0].application.clock()
        for call, content in self.arrived:
            if call.answered:
                continue
            if isinstance(error, InvalidRequest | OutOfMemory) or (
                isinstance(error, DeadlineExceeded) and call.deadline_s > now
            ):
                call.handle = None
                call.begin(content)
            else:
                _note_asked(call, self.coalesced)
                call.set_exception(copy(error))


@dataclass(slots=True, eq=False, repr=False)
class _OwnReply:
    """The reply of one of several calls, after the batcher has taken them apart."""

    call: UnaryCall
    content: bytes
    coalesced: CallsAsOne

    def done(self) -> bool:
        return self.call.answered

    def set_result(self, answer: Answer, /) -> None:
        _note_asked(self.call, self.coalesced)
        _note_timing(self.call, answer, self.coalesced.rows)
        try:
            (message,) = self.coalesced.write(answer.outputs)
        except Exception as error:
            self.call.set_exception(error)
        else:
            _reply(self.call, message)

    def set_exception(self, error: Exception, /) -> None:
        _note_asked(self.call, self.coalesced)
        self.call.set_exception(error)


def _reply(call: UnaryCall, message: bytes) -> None:
    """Never raises: other calls are answered after it."""
    try:
        call.reply(message)
    except Exception as error:
        call.set_exception(error)


def _note_timing(call: UnaryCall, answer: Answer, rows: int) -> None:
    """Of a traced call: its `rows` rows were computed."""
    if call.trace is not None:
        call.trace.computed(answer.timing, rows, call.application.clock())


def _note_asked(call: UnaryCall, coalesced: CallsAsOne) -> None:
    call.model, call.version, call.signature = (
        coalesced.model.name,
        coalesced.model.version,
        coalesced.request.signature,
    )
