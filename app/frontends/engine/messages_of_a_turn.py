"""Coalesced requests of several frontends that arrive in one turn of the event loop, as one request of the model.

A call costs nearly the same for the rows of one message as for those of all. While cores are short, frontends run
before the engine does, and their messages meet here. Messages share a call if they are for one model and signature, of
one caller and shape, with deadlines that are alike, since a call has the earliest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from app.core.inference import InferenceRequest
from app.core.interfaces import ServedModel
from app.core.joining.groups import alike_groups, calls_by_rows, joined_request
from app.core.joining.joined_reply import JoinedReply, PartReply
from app.core.reply import ANSWERED, CoalescedReply, Reply


class MessageReply(CoalescedReply, PartReply, Protocol):
    """The reply of one message; it is the CoalescedReply of its requests, too."""


class CoalescedMessage(NamedTuple):
    """The coalesced requests of one message of a frontend.

    Attributes:
        submit: submits the message by itself.
    """

    model: ServedModel
    request: InferenceRequest
    reply: MessageReply
    submit: Callable[[], None]

    @property
    def rows(self) -> int:
        return sum(self.reply.rows)


class MessagesOfATurn:
    """Submits coalesced requests at the end of the turn in which they came.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._arrived: list[CoalescedMessage] = []

    def add(self, message: CoalescedMessage) -> None:
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self.submit)
        self._arrived.append(message)

    def submit(self) -> None:
        """Submits the messages so far: at the end of a turn, or before a single request, which must not overtake."""
        arrived, self._arrived = self._arrived, []
        kinds: dict[object, list[int]] = {}
        for place, each in enumerate(arrived):
            if not each.reply.done():
                kinds.setdefault((id(each.model), *_form(each.request)), []).append(place)
        now = self._clock()
        calls = [call for places in kinds.values() for call in _calls(arrived, places, now)]
        for call in sorted(calls):  # in order of arrival
            messages = [arrived[place] for place in call]
            if len(messages) > 1:
                JoinedMessages(messages, self._clock).submit()
            else:
                messages[0].submit()


def _calls(arrived: Sequence[CoalescedMessage], places: list[int], now: float) -> Iterator[list[int]]:
    """The places of messages of one kind, by the call that they share."""
    for alike, _ in alike_groups(places, [arrived[place].request.deadline_s for place in places], now):
        messages = [arrived[place] for place in alike]
        for numbers in calls_by_rows([each.rows for each in messages], messages[0].model.sizes.largest):
            yield alike[numbers]


def _form(request: InferenceRequest) -> tuple[object, ...]:
    shapes = tuple([(name, array.dtype, array.shape[1:]) for name, array in request.inputs.items()])
    return request.signature, request.outputs, request.priority, request.caller, shapes


class JoinedMessages(JoinedReply[MessageReply]):
    """The JoinedReply of messages, each of which is the reply of several requests itself."""

    __slots__ = ("_clock", "_messages")

    def __init__(self, messages: Sequence[CoalescedMessage], clock: Callable[[], float]) -> None:
        super().__init__([each.reply for each in messages], [each.rows for each in messages])
        self._messages = messages
        self._clock = clock

    def submit(self) -> None:
        """Submits the messages as one request; each by itself if that finds no room, or raises an error."""
        request = joined_request([each.request for each in self._messages])
        try:
            taken = self.submit_to(self._messages[0].model, request, [self._clock()] * len(self.rows))
        except Exception:  # an error of the joined request: each message is submitted by itself, and raises its own
            taken = False
        if not taken:
            for each in self._messages:
                each.submit()

    def begin_alone(self, number: int) -> bool:
        self._messages[number].submit()
        return True

    def has_time(self, number: int) -> bool:
        return self._messages[number].request.deadline_s > self._clock()

    def _leave(self, number: int) -> None:
        first = sum([len(part.rows) for part in self.parts[:number]])
        for request in range(first, first + len(self.parts[number].rows)):
            self._handle.cancel_one(request)

    @property
    def rows(self) -> Sequence[int]:
        """The rows of each request in all messages."""
        return [rows for part in self.parts for rows in part.rows]

    def separate(self) -> Sequence[Reply]:
        return [reply for part in self.parts for reply in _separate(part)]


def _separate(reply: CoalescedReply) -> Sequence[Reply]:
    return [ANSWERED] * len(reply.rows) if reply.done() else reply.separate()
