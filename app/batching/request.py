"""Requests in the batcher: their rows, times and replies, and the handles of their callers. No I/O, no clock."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple, Protocol, cast

from app.batching.priority import PATIENCE_S
from app.core.inference import Array, InnerShapes
from app.core.reply import ANSWERED, Answer, CoalescedReply, Reply, fail, fail_broken

logger = logging.getLogger(__name__)


#: The shared inputs of a lane: name, dtype, shape and content of each; of each SparseTensor: name and sizes.
SharedInputs = tuple[Hashable, ...]


class LaneKey(NamedTuple):
    """The key of a lane: requests with equal keys may share one call of a model.

    Attributes:
        shape: the inner shape (all dimensions but the first) of each input; if `padded`, the largest of their bucket.
        padded: requests of this lane may have different inner shapes and are padded to share a call.
        generation: the number of the model's placement: requests that were placed otherwise never share a call.
        suspect: its callers sent bad requests lately (isolation.py).
        shared: the inputs that are equal in all requests: name, dtype, shape and content of each input that is no row;
            name and sizes of each SparseTensor, without its rows.
    """

    model: str
    version: int
    signature: str
    outputs: tuple[str, ...] = ()
    shape: InnerShapes = ()
    padded: bool = False
    generation: int = 0
    suspect: bool = False
    shared: SharedInputs = ()

    @property
    def call(self) -> tuple[str, int, str, tuple[str, ...], int, bool, SharedInputs]:
        """The part of the key that is equal for requests of different inner shapes that may share a call."""
        return (*self[:4], self.generation, self.suspect, self.shared)

    def __str__(self) -> str:
        return f"{self.model}/{self.version}/{self.signature}"


class LaterSteps(NamedTuple):
    """The further calls of a larger request, which are judged with it or with its first step.

    calls: the number of these calls.
    models: the models that they call.
    seconds: gives the expected seconds of the calls; it is called only where time may be short.
    waiting_rows: the rows of its other first steps, which wait already. Room was found for all with the first of them.
    """

    calls: int
    models: Sequence[str]
    seconds: Callable[[], float]
    waiting_rows: int = 0


class RequestHandle:
    """The handle of an accepted request. Its caller cancels on every way out; after the answer that has no effect."""

    __slots__ = ("_cancel", "_request")

    def __init__(self, request: PendingRequest, cancel: Callable[[PendingRequest], bool]) -> None:
        self._request = request
        self._cancel = cancel

    def cancel(self) -> None:
        """Gives up the answer: a request that waits is never computed."""
        self._cancel(self._request)

    def cancel_one(self, number: int) -> None:
        """Does nothing: the call is for other requests, too. See CoalescedHandle."""

    def withdraw(self) -> bool:
        """Cancels it if all of it still waits; returns whether it did."""
        return self.waits and self._request.parts is None and self._cancel(self._request)

    @property
    def waits(self) -> bool:
        """Whether it is in a lane: no batch has it, or only a part of it."""
        return self._request.lane is not None

    @property
    def waiting_rows(self) -> int:
        """The request's rows as the queue counts them; 0 if it is in no lane."""
        return self._request.counted_rows if self.waits else 0


_NOTHING: Mapping[str, Array] = {}


class PartsOfRequest(Protocol):
    """The parts of a request that is larger than a batch (large_requests.py)."""

    @property
    def cut_rows(self) -> int:
        """The rows of these parts."""

    def add(self, rows: int) -> Reply:
        """The reply of a new part of `rows` rows."""


class DivisibleReply(CoalescedReply, Protocol):
    """The reply of a step that stands for several requests, and may be divided among several calls."""

    def divide(self, number: int, handle: RequestHandle) -> tuple[Reply, Reply]:
        """The replies of the first `number` requests, and of the remaining ones. They replace this reply.

        Args:
            handle: the handle of the first requests' step; the other requests keep the handle of all.
        """


class PendingRequest:
    """A request in the batcher, or one part of it (large_requests.py).

    Attributes:
        inputs: name -> array of shape [rows, ...]; rows that were cut off as parts are still in them.
        arrival_s: the time of its arrival; all times are monotonic seconds.
        entered_s: the time when it entered its lane: its arrival, or, if it is computed in parts, after the last part.
        priority_offset_s: see priority.py.
        caller: the name of its caller, for fairness among callers; empty if callers are not told apart.
        lane: the key of the lane that it waits in; None while it waits in none.
        tensor_bytes, room: the memory of its inputs when it was queued, and the room that it takes there (room.py).
        coalesced_s: if it stands for several that arrived in the same turn of the event loop, the arrival of each; its
            reply is a CoalescedReply then.
        feeds: whether it is a step of a larger request, whose next steps are submitted when it is answered.
        supplied: it stood ready until a device was free (waiting/supplies.py).
        judged: admission estimated the time of its answer (admission.py), and let it in.
        later_step: whether it is a step of a larger request, but not the first. It keeps the arrival of the whole, so
            it may come to its lane after others that arrived later.
        accept_part: set for a step that stands for several requests: it gets the part that is taken off, before that
            is answered, and returns the part's handle.
        again: whether it takes the place of a step that left its lane, and has the arrival of that.
    """

    __slots__ = (
        "accept_part", "again", "arrival_s", "caller", "coalesced_s", "deadline_s", "entered_s", "feeds", "inputs",
        "judged", "lane", "later_step", "parts", "priority_offset_s", "reply", "room", "rows", "supplied",
        "tensor_bytes",
    )  # fmt: skip
    accept_part: Callable[[PendingRequest], RequestHandle]
    room: int
    tensor_bytes: int

    def __init__(  # noqa: PLR0917 - one is made for each request, and names cost time
        self,
        inputs: Mapping[str, Array],
        rows: int,
        reply: Reply,
        arrival_s: float,
        deadline_s: float = inf,
        priority_offset_s: float = 0.0,
        caller: str = "",
    ) -> None:
        self.caller = caller
        self.inputs = inputs
        self.rows = rows
        self.reply = reply
        self.arrival_s = arrival_s
        self.entered_s = arrival_s
        self.deadline_s = deadline_s
        self.priority_offset_s = priority_offset_s
        self.lane: LaneKey | None = None
        self.parts: PartsOfRequest | None = None
        self.coalesced_s: Sequence[float] = ()
        self.again = self.feeds = self.judged = self.later_step = self.supplied = False

    @property
    def counted_rows(self) -> int:
        """The request's rows as the queue counts them: at least 1, so that no request waits for free."""
        return self.rows or 1

    @property
    def order_key_s(self) -> float:
        """The key of the request's place in its lane: the request with the lowest key is first."""
        return self.entered_s - self.priority_offset_s

    @property
    def scheduling_key_s(self) -> float:
        """The place of its lane among lanes: the one with the lowest key is scheduled first. See priority.py."""
        return min(self.deadline_s, self.entered_s + PATIENCE_S) - self.priority_offset_s

    def part(self, inputs: Mapping[str, Array], rows: int, reply: Reply, arrival_s: float) -> PendingRequest:
        """A request for some of its rows, of the same caller, deadline and priority."""
        part = PendingRequest(inputs, rows, reply, arrival_s, self.deadline_s, self.priority_offset_s, self.caller)
        part.feeds, part.later_step = self.feeds, self.later_step
        return part

    def apart(self) -> list[PendingRequest]:
        """The requests that it stands for, each with its rows and reply. They take its place: it is released."""
        reply, inputs, start, apart = cast(CoalescedReply, self.reply), self.inputs, 0, []
        for rows, own_reply, arrival_s in zip(reply.rows, reply.separate(), self.coalesced_s, strict=True):
            row_inputs, start = {name: array[start : start + rows] for name, array in inputs.items()}, start + rows
            apart.append(self.part(row_inputs, rows, own_reply, arrival_s))
        self.release()
        return apart

    def fitting(self, rows: int) -> int:
        """The rows of the first requests that it stands for, at most `rows` together; 0 if it stays whole."""
        if not self.feeds:
            return 0
        ends = [*accumulate(cast(DivisibleReply, self.reply).rows)]
        number = bisect_right(ends, rows)
        return ends[number - 1] if number else 0

    def divide(self, rows: int) -> PendingRequest:
        """Takes off the first requests that it stands for, which have `rows` rows (see `fitting`), as one request."""
        reply, inputs, coalesced_s = cast(DivisibleReply, self.reply), self.inputs, self.coalesced_s
        number = [*accumulate(reply.rows)].index(rows) + 1
        first_inputs = {name: array[:rows] for name, array in inputs.items()}
        first = self.part(first_inputs, rows, reply, self.arrival_s)
        first.entered_s, first.judged = self.entered_s, self.judged
        first.reply, self.reply = reply.divide(number, self.accept_part(first))
        self.inputs, self.rows = {name: array[rows:] for name, array in inputs.items()}, self.rows - rows
        first.coalesced_s, self.coalesced_s = _of_several(coalesced_s[:number]), _of_several(coalesced_s[number:])
        return first

    def answer(self, answer: Answer) -> None:
        """Answers it with its own rows, unless it is answered. Never raises."""
        try:
            if not self.reply.done():
                self.reply.set_result(answer)
        except Exception:
            fail_broken(self.reply)

    def fail(self, error: Exception) -> None:
        """Answers it with an error, unless it is answered. Never raises."""
        fail(self.reply, error)

    def release(self) -> None:
        """Drops tensors, reply and parts, so that neither lists that still contain it nor a cycle keep their memory."""
        self.inputs = _NOTHING
        self.reply = ANSWERED
        self.parts = None

    def __repr__(self) -> str:
        state = "answered" if self.reply.done() else "waiting" if self.lane is not None else "taken"
        return (
            f"<PendingRequest {self.rows} rows, arrived at {self.arrival_s:g} s, due by {self.deadline_s:g} s, {state}>"
        )


def _of_several(coalesced_s: Sequence[float]) -> Sequence[float]:
    return coalesced_s if len(coalesced_s) > 1 else ()
