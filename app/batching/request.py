"""A request on its way through the batcher. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple, Protocol

from app.batching.priority import PATIENCE_S
from app.core.errors import ServingError
from app.core.inference import Array
from app.core.reply import ANSWERED, Reply


class LaneKey(NamedTuple):
    """Requests with equal keys may share one call of a model.

    `shape` holds the inner shape (all dimensions but the first) of each input; of requests that are padded
    to share a call, the one that bounds their bucket.
    """

    model: str
    version: int
    signature: str
    outputs: tuple[str, ...] = ()
    shape: tuple[tuple[int, ...], ...] = ()
    padded: bool = False


class RequestHandle:
    """A request that was accepted. To be cancelled on every way out; that it was answered does no harm."""

    __slots__ = ("_request", "_withdraw")

    def __init__(self, request: PendingRequest, cancel: Callable[[PendingRequest], None]) -> None:
        self._request = request
        self._withdraw = cancel

    def cancel(self) -> None:
        """Nobody waits for the answer any more: what has not begun is never computed."""
        self._withdraw(self._request)


_NOTHING: Mapping[str, Array] = {}


class PartsOfRequest(Protocol):
    """The parts of a request that is larger than a batch (large_requests.py)."""

    def add(self, rows: int) -> Reply:
        """The reply of a new part of `rows` rows."""


class PendingRequest:
    """What one caller waits for, or one part of it (large_requests.py).

    Times are monotonic seconds: it came at `arrival_s` and stands in its lane since `entered_s`, which differ only
    for what is left of a request that is computed in parts. `priority_offset_s` see priority.py.
    `lane` is the key of the lane that it waits in, None while it waits in none.
    """

    __slots__ = (
        "arrival_s",
        "deadline_s",
        "entered_s",
        "inputs",
        "lane",
        "parts",
        "priority_offset_s",
        "reply",
        "rows",
    )

    def __init__(  # noqa: PLR0917 - one is made for each request, and names cost time
        self,
        inputs: Mapping[str, Array],
        rows: int,
        reply: Reply,
        arrival_s: float,
        deadline_s: float = inf,
        priority_offset_s: float = 0.0,
    ) -> None:
        self.inputs = inputs
        self.rows = rows
        self.reply = reply
        self.arrival_s = arrival_s
        self.entered_s = arrival_s
        self.deadline_s = deadline_s
        self.priority_offset_s = priority_offset_s
        self.lane: LaneKey | None = None
        self.parts: PartsOfRequest | None = None

    @property
    def weight(self) -> int:
        return self.rows or 1

    @property
    def order_key_s(self) -> float:
        """Its place in its lane: the earlier, the nearer to the front."""
        return self.entered_s - self.priority_offset_s

    @property
    def scheduling_key_s(self) -> float:
        """Its lane's place among lanes: the earlier, the sooner. See priority.py."""
        return min(self.deadline_s, self.entered_s + PATIENCE_S) - self.priority_offset_s

    def fail(self, error: ServingError) -> None:
        """Answers it by an error, unless it is answered."""
        if not self.reply.done():
            self.reply.set_exception(error)

    def forget(self) -> None:
        """Lets go of tensors and reply: whoever still lists the request must not keep their memory."""
        self.inputs = _NOTHING
        self.reply = ANSWERED
