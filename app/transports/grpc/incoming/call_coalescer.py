"""Calls that arrive in one turn of the event loop are begun together, and answered with one write for each connection.

The rules are those of HTTP (app/transports/coalescing/coalescer.py). If the model is quick, calls with messages of one
form are decoded into one array, submitted as one request and computed by one call of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.core.burst import Burst
from app.core.reply import Answer
from app.transports.coalescing.coalescer import Coalescer, JoinedRequests
from app.transports.fairness.fair_queue import Share
from app.transports.grpc.incoming.unary_call import UnaryCall
from app.transports.grpc.taskless import CallsAsOne, Taskless
from app.transports.memory.reply_room import reserve_now

_Arrived = list[tuple[UnaryCall, bytes]]

#: The method, the form of the message, and the caller.
_Kind = tuple[Taskless, Any, str]


class JoinedCalls(JoinedRequests[UnaryCall, CallsAsOne]):
    """The JoinedReply of calls; it writes the messages of all replies at once."""

    __slots__ = ()

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
            messages = self._read.write(answer.outputs)
        except Exception as error:
            self.set_exception(error)
            return
        for call, message in zip(self.parts, messages, strict=True):
            if not call.answered:
                self._reply(call, message, answer)

    def give(self, number: int, answer: Answer) -> None:
        try:
            (message,) = self._read.write(answer.outputs)
        except Exception as error:
            self.fail(number, error)
        else:
            self._reply(self.parts[number], message, answer)

    def _reply(self, call: UnaryCall, message: bytes, answer: Answer) -> None:
        """Never raises: other calls are answered after it."""
        call.handle = None  # there is nothing left to cancel
        call.record_model(self._read.model, self._request.signature)
        if call.trace is not None:
            call.trace.computed(answer.timing, self.part_rows[0], call.application.clock())
        try:
            call.reply(message)
        except Exception as error:
            call.set_exception(error)


class CallCoalescer(Coalescer[UnaryCall, CallsAsOne]):
    """Begins calls of gRPC.

    Args:
        flush: sends the answers.
    """

    joined = JoinedCalls

    def __init__(self, burst: Burst, flush: Callable[[], None], clock: Callable[[], float]) -> None:
        super().__init__(clock, burst)
        self._flush = flush

    def share_of(self, call: UnaryCall) -> Share:
        return call.connection.share

    def groups(self, arrived: Sequence[tuple[UnaryCall, bytes]]) -> dict[_Kind, _Arrived]:
        """Groups of at least two calls of one form and caller."""
        groups: dict[_Kind, _Arrived] = {}
        for each in arrived:
            call, content = each
            taskless: Any = call.method.taskless  # not None: else the call would have a task
            form: Any = taskless.form(content)
            permit = call.permit
            if form is None or call.head.priority is not None or (permit and not permit.allows(taskless.model(form))):
                continue
            key = (taskless, form, call.caller)
            group = groups.get(key)
            if group is None:
                groups[key] = [each]
            else:
                group.append(each)
        return {key: group for key, group in groups.items() if len(group) > 1}

    def deadlines_s(self, arrived: Sequence[tuple[UnaryCall, bytes]]) -> list[float]:
        return [call.deadline_s for call, _ in arrived]

    def read(self, key: _Kind, group: _Arrived, deadline_s: float) -> CallsAsOne | None:
        taskless, form, caller = key
        return taskless.begin_coalesced(form, [content for _, content in group], deadline_s, caller)

    def begin_alone(self, call: UnaryCall, content: bytes) -> bool:
        if call.begun or call.answered:
            return False
        call.begin(content)
        return True

    def turn_ends(self) -> None:
        self._flush()
