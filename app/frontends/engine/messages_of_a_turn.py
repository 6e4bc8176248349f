"""Coalesced requests of several frontends that arrive in one turn of the event loop, as one request of the model.

A call costs nearly the same for the rows of one message as for those of all. While cores are short, frontends run
before the engine does, and their messages meet here. Who shares a call: requests of one model, signature, caller and
shape, with nearly equal deadlines, since a call has the earliest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from app.core.inference import InferenceRequest
from app.core.interfaces import Cancellable, ServedModel
from app.core.reply import ANSWERED, COMPLETED, Answer, CoalescedReply, Reply

#: Requests of one call have deadlines that differ by less, and by less than this part of the time that is left.
#: Chosen, as for the requests of one turn (app/transports/http/direct/request_coalescer.py).
_DIFFERENCE_S, _DIFFERENCE = 0.05, 0.1


class CoalescedMessage(NamedTuple):
    """What a frontend sent as one request.

    Attributes:
        submit: submits it by itself.
        submitted: is told the handle of the call that it shares.
    """

    model: ServedModel
    request: InferenceRequest
    reply: CoalescedReply
    submit: Callable[[], None]
    submitted: Callable[[Cancellable], None]

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
        """Submits what came so far: at once where another request follows, which must not overtake."""
        arrived, self._arrived = self._arrived, []
        kinds: dict[object, list[tuple[int, CoalescedMessage]]] = {}
        for place, each in enumerate(arrived):
            if not each.reply.done():
                kinds.setdefault((id(each.model), *_form(each.request)), []).append((place, each))
        # In order of arrival, within a call and among calls.
        groups = sorted(sorted(group) for kind in kinds.values() for group in self._groups(kind))
        for group in groups:
            if len(group) > 1:
                JoinedMessages([each for _, each in group]).submit(self._clock())
            else:
                group[0][1].submit()

    def _groups(self, kind: list[tuple[int, CoalescedMessage]]) -> Iterator[list[tuple[int, CoalescedMessage]]]:
        """Those that share a call, by their deadlines."""
        group: list[tuple[int, CoalescedMessage]] = []
        room, first_s = 0, 0.0
        for place, each in sorted(kind, key=lambda placed: placed[1].request.deadline_s):
            if group and each.rows <= room and self._alike(first_s, each.request.deadline_s):
                group.append((place, each))
                room -= each.rows
                continue
            if group:
                yield group
            group, room, first_s = [(place, each)], each.model.sizes.largest - each.rows, each.request.deadline_s
        yield group

    def _alike(self, first_s: float, other_s: float) -> bool:
        """Whether two deadlines, of which the first is no later, are nearly equal."""
        return first_s == other_s or other_s - first_s < min(_DIFFERENCE_S, _DIFFERENCE * (first_s - self._clock()))


def _form(request: InferenceRequest) -> tuple[object, ...]:
    shapes = tuple([(name, array.dtype, array.shape[1:]) for name, array in request.inputs.items()])
    return request.signature, request.outputs, request.priority, request.caller, shapes


class JoinedMessages:
    """Messages that are submitted as one request. For the batcher it is their reply, for each of them its handle."""

    __slots__ = ("_handle", "_messages", "_wanted")

    def __init__(self, messages: Sequence[CoalescedMessage]) -> None:
        self._messages = messages
        self._wanted = len(messages)
        self._handle: Cancellable = COMPLETED

    def submit(self, now_s: float) -> None:
        """Each is submitted by itself if they find no room together."""
        model = self._messages[0].model
        for each in self._messages:
            each.submitted(self)
        try:
            request = _joined([each.request for each in self._messages])
            handle = model.submit_coalesced(request, [now_s] * len(self.rows), self)
        except Exception:  # each has its own error
            handle = None
        if handle is not None:
            self._handle = handle
            return
        for each in self._messages:
            each.submitted(COMPLETED)
            each.submit()

    def cancel(self) -> None:
        """One of the messages is answered or not wanted any more; the call is cancelled with the last of them."""
        self._wanted -= 1
        if not self._wanted:
            self._handle.cancel()

    # --- the batcher's CoalescedReply ---

    @property
    def rows(self) -> Sequence[int]:
        return [rows for each in self._messages for rows in each.reply.rows]

    def done(self) -> bool:
        return all(each.reply.done() for each in self._messages)

    def apart(self) -> Sequence[Reply]:
        return [reply for each in self._messages for reply in _apart(each.reply)]

    def set_result(self, answer: Answer, /) -> None:
        end = 0
        for each in self._messages:
            start, end = end, end + each.rows
            if not each.reply.done():
                outputs = {name: array[start:end] for name, array in answer.outputs.items()}
                each.reply.set_result(Answer(outputs, answer.timing))

    def set_exception(self, error: Exception, /) -> None:
        for each in self._messages:
            if not each.reply.done():
                each.reply.set_exception(copy(error))


def _apart(reply: CoalescedReply) -> Sequence[Reply]:
    return [ANSWERED] * len(reply.rows) if reply.done() else reply.apart()


def _joined(requests: Sequence[InferenceRequest]) -> InferenceRequest:
    joined = copy(requests[0])
    joined.deadline_s = min(request.deadline_s for request in requests)
    joined.inputs = {
        name: np.concatenate([request.inputs[name] for request in requests]) for name in requests[0].inputs
    }
    return joined
