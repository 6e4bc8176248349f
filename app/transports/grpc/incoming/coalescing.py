"""Calls that arrive in one turn of the event loop are begun together, and answered with one write for each connection.

The rules are those of HTTP (app/transports/http/direct/request_coalescer.py): calls with messages of one form are
decoded into one array, submitted as one request and computed by one call if the model is quick; what is unusual or
invalid begins alone, in order of arrival (app/transports/requests_of_a_turn.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from app.core.burst import Burst
from app.core.inference import InferenceRequest
from app.core.joining.groups import alike_groups, split_request
from app.core.reply import Answer
from app.transports.fairness.fair_queue import Share
from app.transports.grpc.incoming.unary_call import UnaryCall
from app.transports.grpc.taskless import CallsAsOne, Taskless
from app.transports.joined_requests import Answers, JoinedRequests
from app.transports.memory.reply_room import reserve_now
from app.transports.requests_of_a_turn import RequestsOfATurn

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
        alone, groups = _by_form(arrived, self._clock())
        read: list[JoinedCalls] = []
        for (taskless, form, caller), group in groups:
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


#: The method, the form of the message, and the caller.
_Kind = tuple[Taskless, Any, str]

_Group = tuple[_Kind, _Arrived]


def _by_form(arrived: Sequence[tuple[UnaryCall, bytes]], now: float) -> tuple[_Arrived, list[_Group]]:
    """The calls that begin alone, and groups of at least two that may begin together.

    The calls of a group have one form and caller, and deadlines that are alike.
    """
    # 1. By form and caller.
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
        key = (taskless, form, call.caller)
        group = groups.get(key)
        if group is None:
            groups[key] = [each]
        else:
            group.append(each)

    # 2. By deadlines.
    several: list[_Group] = []
    for key, group in groups.items():
        for alike in alike_groups(group, [call.deadline_s for call, _ in group], now):
            if len(alike) > 1:
                several.append((key, alike))
            else:
                alone += alike
    return alone, several


def _read_group(taskless: Taskless, form: Any, caller: str, group: _Arrived, answers: Answers) -> Iterator[JoinedCalls]:
    """Calls of one form in as few calls of the model as possible; those that are not among these begin alone."""
    deadline_s = min([call.deadline_s for call, _ in group])
    coalesced = taskless.begin_coalesced(form, [content for _, content in group], deadline_s, caller)
    if coalesced is None:
        return
    rows = [coalesced.rows] * len(group)
    for numbers, request in split_request(coalesced.request, rows, coalesced.max_rows):
        yield JoinedCalls(group[numbers], rows[numbers], coalesced, request, answers)


class JoinedCalls(JoinedRequests[UnaryCall]):
    """The JoinedReply of calls; it writes the messages of all replies at once."""

    __slots__ = ("_coalesced",)

    def __init__(
        self,
        arrived: _Arrived,
        rows: Sequence[int],
        coalesced: CallsAsOne,
        request: InferenceRequest,
        answers: Answers,
    ) -> None:
        super().__init__(arrived, rows, coalesced.model, request, answers)
        self._coalesced = coalesced

    def has_time(self, number: int) -> bool:
        call = self.parts[number]
        return call.deadline_s > call.application.clock()

    def answer(self, answer: Answer) -> None:
        room = self.parts[0].connection.memory
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
        try:
            messages = self._coalesced.write(answer.outputs)
        except Exception as error:
            self.set_exception(error)
            return
        for number, message in enumerate(messages):
            self._reply(number, message, answer)

    def give(self, number: int, answer: Answer) -> None:
        try:
            (message,) = self._coalesced.write(answer.outputs)
        except Exception as error:
            self.fail(number, error)
        else:
            self._reply(number, message, answer)

    def _reply(self, number: int, message: bytes, answer: Answer) -> None:
        """Never raises: other calls are answered after it."""
        call = self.parts[number]
        if call.answered:
            return
        call.handle = None  # there is nothing left to cancel
        call.record_model(self.model, self.request.signature)
        if call.trace is not None:
            call.trace.computed(answer.timing, self.part_rows[number], call.application.clock())
        try:
            call.reply(message)
        except Exception as error:
            call.set_exception(error)
